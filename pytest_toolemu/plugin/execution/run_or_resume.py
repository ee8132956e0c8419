"""One attempt at an item's run: taken over from an earlier session, or made now, on tape where that is wanted."""

from __future__ import annotations

from pytest_toolemu.core.engine import run_case
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_spec import RunSpec
from pytest_toolemu.models.cassettes.recorder import CassetteRecorder
from pytest_toolemu.plugin.output import outages
from pytest_toolemu.plugin.session import ToolemuSession


def found_before(session: ToolemuSession, spec: RunSpec, item: str) -> Run | None:
    """The item's run where an earlier session finished it. A rerun of the item is a new attempt, and finds nothing."""
    if session.earlier is None or item in session.attempted:
        return None
    session.attempted.add(item)
    return session.earlier.find(spec.resolved_case.case.id, spec.key, item, spec.required_scores)


async def made_now(session: ToolemuSession, spec: RunSpec, item: str) -> Run:
    """The run, made now; its exchanges are played and recorded as the settings say."""
    tape = None
    if session.library is not None:
        tape = CassetteRecorder(session.library, item, spec.resolved_case.case.id, spec.trial)
    ended, use = False, None
    run: Run | None = None
    unwritten: OSError | None = None
    try:
        run = await run_case(spec, tape)
        ended = not run.cut_off
    finally:
        # Also when cancelled: what was answered was paid for.
        try:
            use = tape.finish(ended) if tape else None
        except OSError as error:
            unwritten = error
    if unwritten is not None:
        raise outages.unwritable(session, unwritten, run)
    if use is None:
        return run
    # Where the very first request had no recording nobody answered, so nothing of it is live.
    source = "replayed" if session.settings.plays_only and run.exchanges else run.source
    return run.model_copy(update={"recording": use, "source": source})
