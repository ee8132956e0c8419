"""From an item to its run: at its turn, or ahead of it where nothing of the user's is in the way."""

from __future__ import annotations

import functools
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.analysis.run_row import NOT_RUN, RunRow, agent_name, paid_for, unseen_roles
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_spec import RunSpec
from pytest_toolemu.errors import NotRunError, UsageError
from pytest_toolemu.formats.redaction import redact_json
from pytest_toolemu.models.pricing import Cost, Prices, costs_of
from pytest_toolemu.plugin.collection.collect import CaseFile
from pytest_toolemu.plugin.collection.variants import label_of
from pytest_toolemu.plugin.execution import case_logs
from pytest_toolemu.plugin.execution.item_components import hooks, spec_before_turn
from pytest_toolemu.plugin.execution.item_scheduler import ItemScheduler
from pytest_toolemu.plugin.execution.run_or_resume import found_before, made_now
from pytest_toolemu.plugin.output import manifest, outages
from pytest_toolemu.plugin.output.failure_text import is_brief, trouble
from pytest_toolemu.plugin.output.row_property import PROPERTY, properties
from pytest_toolemu.plugin.session import RAN, SESSION, CaseError, ToolemuSession
from pytest_toolemu.scheduling.job import CaseNotRun, FinishedJob, Job, NotReadyError, StoredRun, WrittenResult
from pytest_toolemu.sessions.oversized_records import RecordTooLargeError, shortened


def carry_out(item: pytest.Item, spec: RunSpec) -> Run:
    """The item's run, once it has ended; CaseError where the instrument failed."""
    if item.config.getoption("setuponly", False):
        pytest.skip("a case is run by a fixture, and --setup-only runs none")
    session = item.config.stash[SESSION]
    case_logs.keep_out()
    try:
        result = flight_of(item.session).result(item, _job(session, spec, item))
    finally:
        session.attempted.add(item.nodeid)  # what comes after is a rerun, wherever this has run
    if result.log:
        item.add_report_section("setup", "log", result.log)
    if isinstance(result, CaseNotRun):
        _note(item, RunRow.from_json(result.row))
        raise CaseError(f"{NOT_RUN}: {result.reason}")
    run, path = flight_of(item.session).run(result)
    if run.source != "resumed":
        item.stash[RAN] = (run.started, run.seconds)
    paid = paid_for(run)
    _note(item, RunRow.of(run, path=str(path), costs=costs_of(paid, session.prices) if paid else {}))
    hooks(item).pytest_toolemu_run_finished(run=run, item=item)
    if run.outcome in ("inconclusive", "broken"):
        raise CaseError(trouble(run, path, brief=is_brief(item.config)))
    return run


def flight_of(session: pytest.Session) -> ItemScheduler:
    """The cases of this process in flight."""
    toolemu = session.config.stash[SESSION]
    return toolemu.flight(lambda: ItemScheduler(toolemu, session.items, functools.partial(_job_ahead, toolemu)))


def _note(item: pytest.Item, row: RunRow) -> None:
    """Let the row travel with the item's reports."""
    item.user_properties[:] = [pair for pair in item.user_properties if pair[0] != PROPERTY]
    # Redacted, as others show it: JUnit files, for one.
    item.user_properties.append((PROPERTY, dumps(redact_json(row.as_json()))))


def _not_run(item: pytest.Item, spec: RunSpec, error: NotRunError) -> RunRow:
    """The row of a case without a run: why, and what it had cost."""
    identity = spec.identity
    known = properties(item.user_properties) or {"case": spec.resolved_case.case.id}
    prices = item.config.stash[SESSION].prices if error.exchanges else Prices(())
    costs = costs_of(error.exchanges, prices)
    total = sum(costs.values(), Cost())
    return RunRow.from_json(known).model_copy(
        update={
            "agent": label_of(item) or agent_name(identity),
            "trial": spec.trial,
            "outcome": NOT_RUN,
            "reason": str(error),
            "costs": costs,
            "tokens": total.input + total.output,
            "calls": total.calls,
            "usage_unknown": total.unknown,
            "unseen": unseen_roles(identity) if error.exchanges else (),
        }
    )


def _job(session: ToolemuSession, spec: RunSpec, item: pytest.Item) -> Job:
    async def job() -> FinishedJob:
        return await _run(session, spec, item)

    return job


def _job_ahead(session: ToolemuSession, item: pytest.Function, values: dict[str, Any]) -> Job:
    """The job of an item before its turn: its parts are made when it starts, in the process in which it does."""

    async def job() -> FinishedJob:
        try:
            spec = await session.loop.run_in_thread(lambda: spec_before_turn(item, session, values))
        except (Exception, pytest.skip.Exception, pytest.fail.Exception):
            spec = None
        if spec is None:  # what raises for one item is its own affair, and is told at its turn
            raise NotReadyError
        return await _run(session, spec, item)

    return job


async def _run(session: ToolemuSession, spec: RunSpec, item: pytest.Item) -> FinishedJob:
    """Run the case, and add what it logged to its result."""
    with case_logs.kept() as lines:
        finished = await _finished(session, spec, item)

    async def write() -> WrittenResult:
        result = await finished.write()
        return replace(result, log="\n".join(lines))

    return FinishedJob(finished.failed, write)


async def _finished(session: ToolemuSession, spec: RunSpec, item: pytest.Item) -> FinishedJob:
    try:
        _write_manifest(session)
        run = found_before(session, spec, item.nodeid)
        if run is None:
            outages.check(session, spec)
            run = await made_now(session, spec, item.nodeid)
            outages.learn(session, spec, run)
    except NotRunError as error:
        return FinishedJob(_is_final(item), functools.partial(_without_run, item, spec, error))
    run = run.model_copy(update={"agent": label_of(item) or agent_name(run.identity)})
    failed = run.outcome != "passed" and _is_final(item)
    return FinishedJob(failed, functools.partial(_stored, session, spec, run, item))


def _write_manifest(session: ToolemuSession) -> None:
    try:
        manifest.write(session)
    except UsageError as error:
        raise outages.unwritable(session, error) from None


async def _stored(session: ToolemuSession, spec: RunSpec, run: Run, item: pytest.Item) -> WrittenResult:
    """Write the run before anybody hears of it, so that any process can read it."""
    try:
        run, path = await _written(session, run, item)
    except OSError as error:
        return await _without_run(item, spec, outages.unwritable(session, error, run))
    session.flight().keep(run, path)
    return StoredRun(str(path), resumed=run.source == "resumed")


async def _written(session: ToolemuSession, run: Run, item: pytest.Item) -> tuple[Run, Path]:
    """Write the run; a second time if that fails, and shortened if its record is too large."""
    try:
        return run, await session.loop.run_writer(functools.partial(session.store.put, run, item.nodeid))
    except RecordTooLargeError as error:
        run = await session.loop.run_writer(functools.partial(shortened, run, error))
    except OSError:
        pass
    return run, await session.loop.run_writer(functools.partial(session.store.put, run, item.nodeid))


async def _without_run(item: pytest.Item, spec: RunSpec, error: NotRunError) -> CaseNotRun:
    return CaseNotRun(str(error), _not_run(item, spec, error).as_json())


def _is_final(item: pytest.Item) -> bool:
    """Whether the item fails if its case does: a Python test has asserts of its own, a rerun is another chance, and a
    gate counts.
    """
    config = item.config
    if config.stash[SESSION].settings.gate:
        return False
    again = config.pluginmanager.hasplugin("rerunfailures") and (config.option.reruns or config.getini("reruns"))
    marked = any(item.get_closest_marker(name) for name in ("flaky", "xfail"))
    return isinstance(item.parent, CaseFile) and not again and not marked
