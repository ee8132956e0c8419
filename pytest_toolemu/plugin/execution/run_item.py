"""Runs the case of an item: at its turn, or before it if no code of the project prevents that."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.analysis.run_summary import (
    NOT_RUN,
    RunSummary,
    agent_name,
    paid_for,
    slices_of,
    summary_of,
    unseen_roles,
)
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.run_spec import RunSpec
from pytest_toolemu.core.verdict import UNJUDGED
from pytest_toolemu.errors import MissingToolError, NotRunError, UsageError
from pytest_toolemu.models.pricing import Cost, Prices, costs_of
from pytest_toolemu.plugin.collection.collect import CaseFile
from pytest_toolemu.plugin.collection.item_agents import agent_title
from pytest_toolemu.plugin.execution import outages
from pytest_toolemu.plugin.execution.captured_output import CaseOutput
from pytest_toolemu.plugin.execution.item_scheduler import ItemScheduler
from pytest_toolemu.plugin.execution.item_spec import spec_before_turn, visible_hooks
from pytest_toolemu.plugin.execution.run_or_resume import run_or_resume
from pytest_toolemu.plugin.output.failures import is_brief, no_verdict_text
from pytest_toolemu.plugin.output.run_property import PROPERTY
from pytest_toolemu.plugin.output.session_manifest import write_manifest
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.plugin.session import RUN_TIMES, SESSION, CaseError, CaseUnjudged
from pytest_toolemu.scheduling.coordinator_messages import (
    CaseNotRun,
    CaseRun,
    FinishedJob,
    NotReadyError,
    WrittenResult,
)
from pytest_toolemu.sessions.store import RecordTooLargeError, shortened


def run_item(item: pytest.Item, services: Services, spec: RunSpec) -> Run:
    """Return the item's run once it has ended. Raise CaseError if the case has no verdict.

    If the item is run again although its run has a verdict, it gets the same run: metrics of the last attempts would be
    better than the agent.
    """
    if item.config.getoption("setuponly", False):
        pytest.skip("--setup-only does not run cases")
    if item.nodeid in services.session.judged:
        return load_run(Path(services.session.judged[item.nodeid]))
    scheduler = start_scheduler(item.session, services)
    try:
        result = scheduler.result(item, CaseJob(services, item, spec))
    finally:
        services.session.attempted.add(item.nodeid)  # any further run of it is a rerun, wherever this one ran
    if isinstance(result, CaseNotRun):
        _attach_summary(item, RunSummary.from_json(result.summary))
        raise CaseError(f"{NOT_RUN}: {result.reason}")
    run = scheduler.read_run(result)
    if run.source != "resumed":
        item.stash[RUN_TIMES] = (run.started, run.seconds)
    paid = paid_for(run)
    costs = costs_of(paid, services.files.prices) if paid else {}
    _attach_summary(item, summary_of(run, result.path, costs, lambda: services.files.prices))
    visible_hooks(item).pytest_toolemu_run_finished(run=run, item=item)
    if run.outcome == UNJUDGED:
        raise CaseUnjudged(f"{UNJUDGED}: {'; '.join(run.reasons)}")
    if run.outcome in ("inconclusive", "broken"):
        raise CaseError(no_verdict_text(run, Path(result.path), brief=is_brief(item.config)))
    services.session.judged[item.nodeid] = result.path
    return run


def start_scheduler(session: pytest.Session, services: Services) -> ItemScheduler:
    """Return the scheduler of this process's items, started on the first call."""
    return services.start_scheduler(session.items, functools.partial(LookaheadJob, services))


@dataclass(frozen=True)
class CaseJob:
    """Runs the case of one item in the process that calls it, and returns how to store the run."""

    services: Services
    item: pytest.Item
    spec: RunSpec

    async def __call__(self) -> FinishedJob:
        """Run the case, or resume its run; never raise for what happens inside the case.

        Raise UsageError if the session has several items that cannot be told apart from this one.
        """
        if self.services.session.repetition:
            raise UsageError(self.services.session.repetition)
        running = self.services.running_cases.running(self.item, self.spec)
        with _collect(self.services, self.item) as output, running:
            try:
                self._write_manifest()
                run = await run_or_resume(self.services, self.spec, self.item.nodeid)
            except MissingToolError as error:
                failure = outages.end_session(self.services.scheduler, error)
                return FinishedJob(True, functools.partial(self._not_run, failure, output))
            except NotRunError as error:
                return FinishedJob(_fails_with_case(self.item), functools.partial(self._not_run, error, output))
        run = run.model_copy(update={"agent": agent_title(self.item, agent_name(run.identity))})
        failed = run.outcome not in ("passed", UNJUDGED) and _fails_with_case(self.item)
        return FinishedJob(failed, functools.partial(self._store, run, output))

    def _write_manifest(self) -> None:
        try:
            write_manifest(self.services)
        except UsageError as error:
            raise outages.stop_writing(self.services.scheduler, self.services.session.folder, error) from None

    async def _store(self, run: Run, output: CaseOutput) -> WrittenResult:
        """Write the record before the result is sent, so that any process can read it."""
        services = self.services
        try:
            run, path = await self._write_record(run)
        except OSError as error:
            not_run = outages.stop_writing(services.scheduler, services.session.folder, error, run)
            return await self._not_run(not_run, output)
        if services.item_scheduler is not None:
            services.item_scheduler.keep_run(run, path)
        return CaseRun(str(path), resumed=run.source == "resumed", sections=output.take_sections())

    async def _write_record(self, run: Run) -> tuple[Run, Path]:
        """Write the record; a second time if that fails, and shortened if it is too large. Return what was written."""
        write, store_run = self.services.case_loop.run_writer, self.services.files.store.put
        try:
            return run, await write(functools.partial(store_run, run, self.item.nodeid))
        except RecordTooLargeError as error:
            run = await write(functools.partial(shortened, run, error))
        except OSError:
            pass
        return run, await write(functools.partial(store_run, run, self.item.nodeid))

    async def _not_run(self, error: NotRunError, output: CaseOutput) -> CaseNotRun:
        prices = self.services.files.prices if error.model_calls else Prices(())
        return CaseNotRun(
            str(error), _not_run_summary(self.item, self.spec, error, prices).as_json(), output.take_sections()
        )


@dataclass(frozen=True)
class LookaheadJob:
    """Runs the case of an item before its turn. Its components are built when it starts, in the process that runs it.

    ``fixture_values`` are the values of the project's fixtures that the item needs, by name.
    """

    services: Services
    item: pytest.Function
    fixture_values: Mapping[str, Any]

    async def __call__(self) -> FinishedJob:
        """Run the case. Raise NotReadyError if its components cannot be built now: its turn will show the error."""
        with _collect(self.services, self.item) as output:
            try:
                spec = await self.services.case_loop.run_in_thread(self._spec)
            except (Exception, pytest.skip.Exception, pytest.fail.Exception):
                spec = None
            if spec is None:
                output.take_sections()  # it will be printed again at the item's turn
                raise NotReadyError
        return await CaseJob(self.services, self.item, spec)()

    def _spec(self) -> RunSpec | None:
        return spec_before_turn(self.item, self.services, self.fixture_values)


def _collect(services: Services, item: pytest.Item) -> contextlib.AbstractContextManager[CaseOutput]:
    return start_scheduler(item.session, services).capture.collect(item.nodeid)


def _attach_summary(item: pytest.Item, run: RunSummary) -> None:
    """Attach the run's summary to the item's reports, which carry it to the process that writes the reports."""
    item.user_properties[:] = [pair for pair in item.user_properties if pair[0] != PROPERTY]
    item.user_properties.append((PROPERTY, dumps(run.as_json())))


def _not_run_summary(item: pytest.Item, spec: RunSpec, error: NotRunError, prices: Prices) -> RunSummary:
    """Return the run summary of a case without a run: the reason, and what the attempt had cost."""
    # Nothing of the item's summary so far: after a rerun, it has the scores and tokens of the former attempt.
    case = spec.resolved_case.case
    costs = costs_of(error.model_calls, prices)
    total = sum(costs.values(), Cost())
    return RunSummary(
        case=case.id,
        variant_of=case.variant_of or "",
        slices=slices_of(case, spec.resolved_case.toolkits),
        agent=agent_title(item, agent_name(spec.identity)),
        turns=spec.limits.turns,
        trial=spec.trial,
        outcome=NOT_RUN,
        reason=str(error),
        costs=costs,
        tokens=total.input + total.output,
        usage_unknown=total.unknown,
        unseen=unseen_roles(spec.identity, error.model_calls) if error.model_calls else (),
    )


def _fails_with_case(item: pytest.Item) -> bool:
    """Return whether the item certainly fails if its case does.

    A Python test has assertions of its own, a rerun is another chance, and with gates cases do not fail the session.
    """
    config = item.config
    if config.stash[SESSION].settings.gate:
        return False
    has_reruns = config.pluginmanager.hasplugin("rerunfailures") and (config.option.reruns or config.getini("reruns"))
    is_marked = any(item.get_closest_marker(name) for name in ("flaky", "xfail"))
    return isinstance(item.parent, CaseFile) and not has_reruns and not is_marked
