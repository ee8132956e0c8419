"""One attempt at a run: an earlier session's run is resumed, or the case is run now, with or without a cassette."""

from __future__ import annotations

from functools import partial

from pytest_toolemu.analysis.run_summary import agent_name
from pytest_toolemu.core.engine import run_case
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_spec import RunSpec
from pytest_toolemu.models.cassette_files import CassetteDirectory
from pytest_toolemu.models.cassette_recorder import CassetteRecorder
from pytest_toolemu.plugin.execution import outages
from pytest_toolemu.plugin.execution.agent_usage import AgentUsageMeter
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.plugin.session import relative_path
from pytest_toolemu.scheduling.coordinator_messages import NoticePosted


async def run_or_resume(services: Services, spec: RunSpec, item: str) -> Run:
    """Return the run of an item, given by its node ID. Raise NotRunError if it cannot or must not be run."""
    run = _resumed(services, spec, item)
    if run is None:
        scheduler = services.scheduler
        outages.check(scheduler, spec)
        run = await _run_now(services, spec, item)
        outages.report(scheduler, spec, run)
        if run.agent_warning:
            scheduler.send(NoticePosted(f"{agent_name(run.identity)}: {run.agent_warning}"))
    return run


def _resumed(services: Services, spec: RunSpec, item: str) -> Run | None:
    """Return the run that an earlier session finished. A rerun of the item is a new attempt and resumes nothing."""
    resumable, attempted = services.files.resumable_sessions, services.session.attempted
    if resumable is None or item in attempted:
        return None
    attempted.add(item)
    reported = set(resumable.unreadable)
    run = resumable.find(spec.resolved_case, spec.key, item, spec.required_scores)
    for folder in resumable.unreadable.keys() - reported:
        reason = resumable.unreadable[folder]
        text = f"{relative_path(folder)}: unreadable records are not reused, such as {reason}"
        services.scheduler.send(NoticePosted(text))
    return run


async def _run_now(services: Services, spec: RunSpec, item: str) -> Run:
    meter = AgentUsageMeter(services.models.permits, lambda: services.files.prices)
    if services.files.cassettes is None:
        return await run_case(spec, None, meter, partial(services.running_cases.watch, item))
    return await _run_with_cassette(services, spec, item, services.files.cassettes, meter)


async def _run_with_cassette(
    services: Services, spec: RunSpec, item: str, cassettes: CassetteDirectory, meter: AgentUsageMeter
) -> Run:
    """Run the case; its model calls are replayed and recorded as the settings say."""
    recorder = CassetteRecorder(cassettes, item, spec.resolved_case.case.id, spec.trial)
    is_complete, use = False, None
    run: Run | None = None
    write_error: OSError | None = None
    try:
        run = await run_case(spec, recorder, meter, partial(services.running_cases.watch, item))
        is_complete = not run.cut_off
    finally:
        # Also if the case was canceled: replies that arrived were paid for.
        try:
            use = recorder.finish(is_complete)
        except OSError as error:
            write_error = error
    if write_error is not None:
        folder = services.session.folder
        raise outages.stop_writing(services.scheduler, folder, write_error, run)
    if use is None:
        return run
    # If there was no recorded call for the very first request, no model answered, so nothing in this run is live.
    source = "replayed" if services.session.settings.plays_only and run.model_calls else run.source
    return run.model_copy(update={"recording": use, "source": source})
