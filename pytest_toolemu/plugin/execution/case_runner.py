"""Runs the cases of one process: an item waits for its run, which may have started before its turn, or elsewhere."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
from pytest_toolemu.components import Components
from pytest_toolemu.core.engine import RunSpec, run_case
from pytest_toolemu.core.run import UNJUDGED, Run
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.run_notes import NO_CALLS
from pytest_toolemu.errors import MissingToolError, NotRunError, UsageError
from pytest_toolemu.formats.redaction import REGISTRY
from pytest_toolemu.models.cassette_recorder import CassetteRecorder
from pytest_toolemu.models.endpoint import ServedEndpoint
from pytest_toolemu.models.model_pool import ModelPool
from pytest_toolemu.models.pricing import Cost, costs_of
from pytest_toolemu.plugin.collection.item_agents import agent_configs, agent_title
from pytest_toolemu.plugin.execution import permits
from pytest_toolemu.plugin.execution.captured_output import CaseCapture, CaseLogs, CaseOutput
from pytest_toolemu.plugin.execution.item_spec import ActiveFixtures, needed_fixtures, spec_before_turn, visible_hooks
from pytest_toolemu.plugin.execution.permits import AgentUsageMeter, SharedBudget
from pytest_toolemu.plugin.output.live import RunningCases
from pytest_toolemu.plugin.output.reports import attach_summary, is_brief, no_verdict_text, properties
from pytest_toolemu.plugin.session import (
    RESOLVED_CASE,
    RUN_TIMES,
    CaseError,
    CaseUnjudged,
    ToolemuSession,
    is_case_file,
    relative_path,
)
from pytest_toolemu.scheduling.coordinator_messages import (
    CaseNotRun,
    CaseRun,
    ItemsCollected,
    Job,
    JobError,
    JobResult,
    NoticePosted,
    NotReadyError,
    SessionHalted,
    WorkerMessage,
    WrittenResult,
)
from pytest_toolemu.scheduling.event_loop import CaseLoop
from pytest_toolemu.scheduling.transport import EncodedMessage, Transport, decode, encode
from pytest_toolemu.scheduling.worker import NoResultError, WorkerScheduler
from pytest_toolemu.sessions.store import RecordTooLargeError, shortened
from pytest_toolemu.settings.option_table import Settings
from pytest_toolemu.settings.resolution import load_env

if TYPE_CHECKING:
    from pytest_toolemu.models.vllm_servers import ServerFleet

# A case's own timeout ends it; if it has not ended so many seconds after that, it is stuck.
_OVERTIME: Final = 30.0
_ONLY_WORKER: Final = "here"


class CaseRunner:
    """The event loop, scheduler, and components of one process, and the cases that they run.

    Nothing is connected or started by the constructor. Custom agents are modules of the project, so its root is
    appended to ``sys.path``, and its ``.env`` file is loaded.
    """

    def __init__(self, session: ToolemuSession, fixtures: ActiveFixtures) -> None:
        settings, root = session.settings, session.config.rootpath
        sys.path.append(str(root))
        load_env(root / ".env")
        REGISTRY.remember()
        self.session = session
        self.loop = CaseLoop()
        self.scheduler = WorkerScheduler(self.loop, self._error_of, settings.timeout + _OVERTIME)
        self.budget = SharedBudget(self.scheduler, settings.budget_usd)
        served = session.worker_input.served_endpoints if session.worker_input else {}
        self.endpoints = {name: ServedEndpoint(*endpoint) for name, endpoint in served.items()}
        """The endpoints of the models that the session serves itself, by model name."""
        models = ModelPool(
            settings, self.scheduler.permits, self.budget, lambda: session.prices, lambda: self.endpoints
        )
        self.components = Components(settings, models)
        self.loop.on_close(models.close)
        self.running_cases = RunningCases()
        self.capture: CaseCapture | None = None
        self.certain_failure = ""
        """Why no case of this xdist worker can have a verdict; without xdist, the session is refused."""
        self._fixtures = fixtures
        fixtures.before_teardown = self.scheduler.withdraw
        self._items: Sequence[pytest.Item] = ()
        self._index: dict[pytest.Item, int] = {}
        self._kept_runs: dict[str, Run] = {}

    def connect_in_process(self, transport: Transport) -> None:
        """Connect the scheduler with the coordinator of the same process."""
        transport.connect(_ONLY_WORKER, self.scheduler.receive)
        self.scheduler.connect(functools.partial(transport.receive, _ONLY_WORKER))

    def connect_to_controller(self, channel: Any) -> None:
        """In an xdist worker: connect the scheduler with the coordinator at the other end of the channel."""

        def send(message: WorkerMessage) -> None:
            with contextlib.suppress(OSError):  # closed: the controller is gone, and the end marker says so
                channel.send(encode(message))

        def receive(encoded: EncodedMessage | None) -> None:
            if encoded is None:
                self.scheduler.coordinator_lost()
            else:
                self.scheduler.receive(decode(encoded))

        self.scheduler.connect(send)
        channel.setcallback(receive, endmarker=None)

    def start(self, items: Sequence[pytest.Item]) -> None:
        """Tell the coordinator how many cases there are, and find those that may run before their turn."""
        config = self.session.config
        self._items, self._index = items, {item: index for index, item in enumerate(items)}
        self._logs, self.capture = CaseLogs(config), CaseCapture(config)
        config.pluginmanager.register(self.capture, "toolemu-capture")
        cases = [item for item in items if RESOLVED_CASE in item.stash]
        self.scheduler.send(ItemsCollected(len(cases)))
        # Not while the debugger stops at the item whose turn it is.
        has_debugger = config.getoption("usepdb", False) or config.getoption("trace", False)
        if self.session.settings.run_ahead == "auto" and not has_debugger:
            for item in cases:
                if isinstance(item, pytest.Function) and (needed := needed_fixtures(item)) is not None:
                    self._fixtures.add_item(self._index[item], needed)

    def ready_jobs(self) -> dict[int, Job]:
        """Return the cases that have become ready to run before their turn, to be offered to the coordinator."""
        ready = self._fixtures.take_ready()
        return {i: self._lookahead_job(self._items[i], self._fixtures.values(i)) for i in ready}

    def run_item(self, item: pytest.Item, spec: RunSpec) -> Run:
        """Return the item's run once it has ended. Raise CaseError if the case has no verdict.

        If the item is run again although its run has a verdict, it gets the same run: metrics of the last attempts
        would be better than the agent.
        """
        session = self.session
        if item.nodeid in session.judged:
            return load_run(Path(session.judged[item.nodeid]))
        try:
            result = self._result(item, functools.partial(self._run, item, spec))
        finally:
            session.attempted.add(item.nodeid)  # any further run of it is a rerun, wherever this one ran
        if isinstance(result, CaseNotRun):
            attach_summary(item, result.summary)
            raise CaseError(f"{NOT_RUN}: {result.reason}")
        run = self._kept_runs.pop(result.path, None) or load_run(Path(result.path))
        if run.source != "resumed":
            item.stash[RUN_TIMES] = (run.started, run.seconds)
        paid = paid_for(run)
        costs = costs_of(paid, session.prices) if paid else {}
        attach_summary(item, summary_of(run, result.path, costs, lambda: session.prices).as_json())
        visible_hooks(item).pytest_toolemu_run_finished(run=run, item=item)
        if run.outcome == UNJUDGED:
            raise CaseUnjudged(f"{UNJUDGED}: {'; '.join(run.reasons)}")
        if run.outcome in ("inconclusive", "broken"):
            raise CaseError(no_verdict_text(run, Path(result.path), brief=is_brief(item.config)))
        session.judged[item.nodeid] = result.path
        return run

    def end_session(self, item: pytest.Item, mistake: str) -> None:
        """End the session after a mistake that keeps an item from running and would be made in every case."""
        self.scheduler.send(SessionHalted(mistake))
        item.session.shouldstop = item.session.shouldstop or f"toolemu: {mistake}"
        if content := properties(item.user_properties):
            attach_summary(item, {**content, "is_mistake": True})

    def close(self, hurry: threading.Event) -> dict[str, dict[str, str]]:
        """Cancel what still runs, and close the models. Return the output that no item has reported, by node ID."""
        self.scheduler.close()
        self.loop.close(hurry)
        if self.capture is None:
            return {}
        self._logs.close()
        return self.capture.close()

    def _result(self, item: pytest.Item, job: Job) -> CaseRun | CaseNotRun:
        """Wait for the result of the item's job, wherever it runs, and attach what the case printed to the item.

        If there is none, raise CaseError or UsageError, or skip the item, and end a session that is over.
        """
        try:
            result: JobResult = self.scheduler.result(self._index[item], job, self.ready_jobs())
        except NoResultError as error:
            if error.kind == "broken":
                raise CaseError(f"broken: {error}") from None
            if error.kind == "stopped":
                item.session.shouldstop = item.session.shouldstop or f"toolemu: {error}"
            pytest.skip(f"not run: {error}")
        for name, text in result.sections.items():
            item.add_report_section("setup", name, text)
        if isinstance(result, JobError):
            raise (UsageError if result.is_usage_error else CaseError)(result.message)
        return result

    # ---- on the event loop

    def _lookahead_job(self, item: pytest.Item, fixture_values: Mapping[str, Any]) -> Job:
        """Return a job that runs the case of an item before its turn.

        Its components are built when it starts, in the process that runs it. It raises NotReadyError if they cannot be
        built now: the item's turn will show the error.
        """

        async def run(report: Callable[[bool], None]) -> WrittenResult:
            assert self.capture is not None
            with self.capture.collect(item.nodeid) as output:
                build = functools.partial(spec_before_turn, item, self.session, self.components, fixture_values)
                try:
                    spec = await self.loop.run_in_thread(build)
                except (Exception, pytest.skip.Exception, pytest.fail.Exception):
                    spec = None
                if spec is None:
                    output.take_sections()  # it will be printed again at the item's turn
                    raise NotReadyError
            return await self._run(item, spec, report)

        return run

    async def _run(self, item: pytest.Item, spec: RunSpec, report: Callable[[bool], None]) -> WrittenResult:
        """Run the case, or resume its run, and store it; never raise for what happens inside the case."""
        assert self.capture is not None
        with self.capture.collect(item.nodeid) as output, self.running_cases.running(item, spec):
            try:
                run = await self._run_or_resume(spec, item.nodeid)
            except (MissingToolError, NotRunError) as error:
                if has_missing_tool := isinstance(error, MissingToolError):
                    self.scheduler.send(SessionHalted(str(error)))
                report(has_missing_tool or self._fails_with_case(item))
                return await self._not_run(item, spec, error, output)
        run = run.model_copy(update={"agent": agent_title(item, agent_name(run.identity))})
        report(run.outcome not in ("passed", UNJUDGED) and self._fails_with_case(item))
        return await self._store(item, spec, run, output)

    async def _run_or_resume(self, spec: RunSpec, nodeid: str) -> Run:
        """Return the run of an item. Raise NotRunError if it cannot or must not be run."""
        from pytest_toolemu.plugin.output.session_manifest import write_manifest

        if self.certain_failure:
            raise MissingToolError(self.certain_failure)
        try:
            write_manifest(self.session)
        except UsageError as error:
            raise permits.stop_writing(self.scheduler, self.session.folder, error) from None
        if (run := self._resumed(spec, nodeid)) is not None:
            return run
        permits.check_outages(self.scheduler, spec)
        run = await self._run_now(spec, nodeid)
        permits.report_outage(self.scheduler, spec, run)
        permits.report_ending(self.scheduler, spec, run, self.session.settings.same_failures)
        if run.agent_warning and NO_CALLS not in run.agent_warning:  # the summary counts these
            self.scheduler.send(NoticePosted(f"{agent_name(run.identity)}: {run.agent_warning}"))
        return run

    def _resumed(self, spec: RunSpec, nodeid: str) -> Run | None:
        """Return the run that an earlier session finished. A rerun of the item is a new attempt and resumes nothing."""
        resumable, attempted = self.session.resumable_sessions, self.session.attempted
        if resumable is None or nodeid in attempted:
            return None
        attempted.add(nodeid)
        reported = set(resumable.unreadable)
        run = resumable.find(spec.resolved_case, spec.key, nodeid, spec.required_scores, spec.combine)
        for folder in resumable.unreadable.keys() - reported:
            text = f"unreadable records are not reused, such as {resumable.unreadable[folder]}"
            self.scheduler.send(NoticePosted(f"{relative_path(folder)}: {text}"))
        return run

    async def _run_now(self, spec: RunSpec, nodeid: str) -> Run:
        """Run the case; with cassettes, its model calls are replayed and recorded as the settings say."""
        meter = AgentUsageMeter(self.budget, lambda: self.session.prices)
        trajectory, cassettes = self.running_cases.begin(nodeid), self.session.cassettes
        if cassettes is None:
            return await run_case(spec, None, meter, trajectory)
        recorder = CassetteRecorder(cassettes, nodeid, spec.resolved_case.case.id, spec.trial)
        try:
            run = await run_case(spec, recorder, meter, trajectory)
        except BaseException:  # also if the case was canceled: replies that arrived were paid for
            with contextlib.suppress(OSError):
                recorder.finish(False)
            raise
        try:
            use = recorder.finish(not run.cut_off)
        except OSError as error:
            raise permits.stop_writing(self.scheduler, self.session.folder, error, run) from None
        # If there was no recorded call for the very first request, no model answered, so nothing in this run is live.
        source = "replayed" if self.session.settings.plays_only and run.model_calls else run.source
        return run.model_copy(update={"recording": use, "source": source})

    async def _store(self, item: pytest.Item, spec: RunSpec, run: Run, output: CaseOutput) -> WrittenResult:
        """Write the record, shortened if it is too large, before the result is sent, as any process may read it."""
        write, put = self.loop.run_writer, self.session.store.put
        try:
            try:
                path = await write(functools.partial(put, run, item.nodeid))
            except RecordTooLargeError as error:
                run = await write(functools.partial(shortened, run, error))
                path = await write(functools.partial(put, run, item.nodeid))
        except OSError as error:
            failure = permits.stop_writing(self.scheduler, self.session.folder, error, run)
            return await self._not_run(item, spec, failure, output)
        # Items of this process need not read their runs back from the records.
        self._kept_runs[str(path)] = run
        if len(self._kept_runs) > 2 * self.session.settings.concurrency:
            self._kept_runs.pop(next(iter(self._kept_runs)))
        return CaseRun(str(path), resumed=run.source == "resumed", sections=output.take_sections())

    async def _not_run(
        self, item: pytest.Item, spec: RunSpec, error: NotRunError | MissingToolError, output: CaseOutput
    ) -> CaseNotRun:
        """Return the result of a case without a run, with a summary: the reason, and what the attempt had cost."""
        # Nothing of the item's summary so far: after a rerun, it has the scores and tokens of the former attempt.
        case, calls = spec.resolved_case.case, error.model_calls
        costs = costs_of(calls, self.session.prices) if calls else {}
        total = sum(costs.values(), Cost())
        summary = RunSummary(
            case=case.id,
            variant_of=case.variant_of or "",
            slices=slices_of(case, spec.resolved_case.toolkits),
            agent=agent_title(item, agent_name(spec.identity)),
            turns=spec.limits.turns,
            trial=spec.trial,
            outcome=NOT_RUN,
            reason=str(error),
            is_mistake=isinstance(error, MissingToolError),
            costs=costs,
            tokens=total.input + total.output,
            usage_unknown=total.unknown,
            unseen=unseen_roles(spec.identity, calls) if calls else (),
        )
        return CaseNotRun(str(error), summary.as_json(), output.take_sections())

    def _error_of(self, index: int, error: BaseException) -> JobError:
        """Return what a job raised as a result, for the item that waits, which may be in another process."""
        sections = self.capture.take(self._items[index].nodeid) if self.capture is not None else {}
        if isinstance(error, CaseError | UsageError):
            return JobError(str(error), is_usage_error=isinstance(error, UsageError), sections=sections)
        return JobError("".join(traceback.format_exception(error)), sections=sections)

    def _fails_with_case(self, item: pytest.Item) -> bool:
        """Return whether the item certainly fails if its case does.

        A Python test has assertions of its own, a rerun is another chance, and with gates cases do not fail the
        session.
        """
        config = item.config
        has_rerun_plugin = config.pluginmanager.hasplugin("rerunfailures")
        has_reruns = has_rerun_plugin and (config.option.reruns or config.getini("reruns"))
        is_marked = any(item.get_closest_marker(name) for name in ("flaky", "xfail"))
        return is_case_file(item.path.name) and not (self.session.settings.gate or has_reruns or is_marked)


def planned_servers(components: Components, settings: Settings) -> ServerFleet | None:
    """Return the servers that the settings require, not started; None if none is needed.

    Raise UsageError for a model that cannot be served as the settings require.
    """
    if settings.vllm_url or os.environ.get("VLLM_BASE_URL", "").strip() or settings.plays_only:
        return None
    from pytest_toolemu.models.vllm_plan import plan_servers
    from pytest_toolemu.models.vllm_servers import ServerFleet

    models = components.models_in_use(agent_configs(settings) or (None,))
    servers = plan_servers(models, settings.vllm_args, settings.vllm_lora, settings.protocol == "tools")
    return ServerFleet(servers) if servers else None
