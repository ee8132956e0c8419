"""One process of a session: what it runs cases with, and the coordinator where it leads the session.

Each part is built on first use, and its modules are imported then: a pytest run without cases pays for none of them.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.plugin.execution.process_end import Signals
from pytest_toolemu.plugin.session import DIST_EACH, TerminalNote, ToolemuSession
from pytest_toolemu.settings.model_names import fallback_parts, judge_models, provider_of
from pytest_toolemu.settings.option_table import Settings

if TYPE_CHECKING:
    from pytest_toolemu.plugin.execution.case_runner import CaseRunner
    from pytest_toolemu.plugin.execution.item_spec import ActiveFixtures
    from pytest_toolemu.plugin.execution.process_end import ProcessEnd
    from pytest_toolemu.plugin.output.live import LiveWriter
    from pytest_toolemu.plugin.output.progress import Progress
    from pytest_toolemu.scheduling.budget import Budget
    from pytest_toolemu.scheduling.transport import Transport

PROCESS: pytest.StashKey[SessionProcess] = pytest.StashKey()
"""On the config: the process of the session."""


class SessionProcess:
    """The parts of one process. Hooks build and end them; what runs cases or shows results takes what it needs."""

    def __init__(self, session: ToolemuSession) -> None:
        self.session = session
        self.signals = Signals(is_worker=session.is_worker)
        self.process_end: ProcessEnd | None = None
        self.transport: Transport | None = None
        """Leads to the coordinator, in the process that leads the session."""
        self.progress: Progress | None = None
        self._live_writer: LiveWriter | None = None
        self._built_runner: CaseRunner | None = None
        self._are_items_started = self._is_connected = False

    # ---- what runs cases

    @functools.cached_property
    def fixtures(self) -> ActiveFixtures:
        """The fixtures of the project that are set up in this process."""
        from pytest_toolemu.plugin.execution.item_spec import ActiveFixtures

        return ActiveFixtures()

    @property
    def runner(self) -> CaseRunner:
        """What runs cases in this process. Raise UsageError for models that cannot be served as the settings say."""
        if self._built_runner is None:
            from pytest_toolemu.plugin.execution.case_runner import CaseRunner, planned_servers

            session = self.session
            runner = CaseRunner(session, self.fixtures)
            if not session.is_worker and names_vllm(session.settings):
                session.servers = planned_servers(runner.components, session.settings)
                runner.endpoints.update(session.servers.endpoints if session.servers else {})
            self._built_runner = runner
        return self._built_runner

    @property
    def has_coordinator(self) -> bool:
        """Return whether this process leads the session, or is connected with the process that does."""
        worker_input = self.session.worker_input
        return worker_input is None or worker_input.channel is not None

    def start_items(self, items: list[pytest.Item]) -> CaseRunner:
        """Return what runs these items; connect it with the coordinator on the first call."""
        if not self.has_coordinator:
            raise UsageError(DIST_EACH)
        runner, session = self.runner, self.session
        if not self._are_items_started:
            self._are_items_started = True
            if session.worker_input is not None:
                runner.connect_to_controller(session.worker_input.channel)
                self._start_live_writer()
            else:
                session.nodeids = [item.nodeid for item in items]
                self.start_cases()
                self.connect_runner()
            runner.start(items)
        return runner

    def connect_runner(self) -> None:
        """Connect what runs cases with the coordinator of this process; once. It may send requests from now on."""
        if not self._is_connected:
            self._is_connected = True
            self.runner.connect_in_process(self.lead())

    # ---- the coordinator

    def lead(self) -> Transport:
        """Return the transport to the coordinator, which this process leads; start both on the first call."""
        if self.transport is None:
            from pytest_toolemu.plugin.output import progress
            from pytest_toolemu.scheduling.coordinator import Coordinator
            from pytest_toolemu.scheduling.transport import Transport

            config, settings = self.session.config, self.session.settings
            coordinator = Coordinator(settings.concurrency, _maxfail(config), _budget(self.session))
            self.transport = Transport(coordinator, on_tick=self._tick)
            if progress.is_wanted(config):
                self.progress = progress.Progress(config, coordinator)
        return self.transport

    def start_cases(self) -> None:
        """Let the coordinator start cases, now that models and keys have been checked."""
        transport, resumable = self.lead(), self.session.resumable_sessions
        if resumable is not None:
            indices = resumable.probable(self.session.nodeids)
            transport.update(lambda coordinator: coordinator.expect_to_resume(indices))
        transport.update(lambda coordinator: coordinator.start())

    def _tick(self) -> None:
        """Update what is shown; called several times a second on the transport's thread."""
        # An exception would stop the coordinator's timer.
        with contextlib.suppress(Exception):
            if self.transport is not None and self.transport.read(lambda coordinator: coordinator.total > 0):
                self._start_live_writer()
        if self.progress is not None:
            self.progress.tick()

    def _start_live_writer(self) -> None:
        """Write what this process is doing, for those who watch the session; once."""
        if self._live_writer is None:
            from pytest_toolemu.plugin.output.live import LiveWriter, RunningCases

            runner = self._built_runner
            cases = runner.running_cases if runner is not None else RunningCases()
            scheduler = runner.scheduler if runner is not None and self.transport is None else None
            self._live_writer = LiveWriter(self.session, cases, self.transport, scheduler)
            self._live_writer.start()

    # ---- the end

    def limit_exit(self) -> None:
        """Handle signals, and limit the time that this process takes to end; once.

        Must be called before the code of agents is imported.
        """
        if self.process_end is None:
            from pytest_toolemu.plugin.execution.process_end import ProcessEnd
            from pytest_toolemu.plugin.output.terminal_text import report_late

            report = functools.partial(report_late, self.session)
            self.signals.handle_termination()
            self.process_end = ProcessEnd(self.session.settings.exit_timeout, self.signals.hurry, report)

    def exempt(self) -> contextlib.AbstractContextManager[None]:
        """Return a context: what is started inside it does not count as left behind by an agent."""
        return self.process_end.exempt() if self.process_end else contextlib.nullcontext()

    def has_results(self) -> bool:
        """Return whether there is anything to summarize: a result, a shard, or a message of a worker."""
        session = self.session
        if session.run_summaries or session.has_built_worlds or session.shard_manifest:
            return True
        if session.late_messages_file.exists() or session.unreported_output_file.exists():
            return True
        return self.transport is not None and self.transport.read(
            lambda coordinator: bool(coordinator.counts.completed or coordinator.notices)
        )

    def close(self, *, finish_running: bool) -> None:
        """Close models, scheduler, and coordinator.

        With ``finish_running``, a worker completes the cases that it runs for other processes; else they are canceled.
        """
        if self.progress is not None:
            self.progress.close()
        output = {}
        if (runner := self._built_runner) is not None:
            if finish_running and self.session.is_worker and self._are_items_started:
                runner.scheduler.drain()
            output = runner.close(self.signals.hurry)
            if finish_running and runner.loop.leftovers:
                self._report_tasks(runner.loop.leftovers)
        if self.transport is not None:
            results = self.transport.read(lambda coordinator: coordinator.undelivered_results())
            output |= {self.session.nodeids[index]: one.sections for index, one in results.items() if one.sections}
        if output:
            from pytest_toolemu.plugin.output.terminal_text import append_output

            append_output(self.session, output)
        if self.transport is not None:
            self.transport.close()
        if self._live_writer is not None:  # the transport's thread may have started it until now
            self._live_writer.close()

    def _report_tasks(self, tasks: list[str]) -> None:
        """Name the tasks that agents left behind in the summary, which workers reach with a file."""
        from pytest_toolemu.plugin.execution.process_end import listed
        from pytest_toolemu.plugin.output.terminal_text import report_late

        text = f"left behind by agents and canceled: {listed(tasks)}; await or cancel tasks before the agent returns"
        if self.session.is_worker:
            report_late(self.session, text)
        else:
            self.session.notes.append(TerminalNote(text, "yellow"))

    def finish(self) -> None:
        """End what agents left behind. Call this after all fixtures have been torn down and all plugins are done."""
        if self.process_end is not None:
            self.process_end.finish(self.session.exit_status)
        self.signals.restore()


def names_vllm(settings: Settings) -> bool:
    """Return whether the settings name a model of vLLM, for which the session may have to start a server."""
    judges = (model for name in settings.evaluator for model in judge_models(name))
    names = (*settings.agent, settings.emulator or "", settings.builder or "", settings.user, *judges)
    return any(provider_of(part) == "vllm" for name in names for part in fallback_parts(name))


def _budget(session: ToolemuSession) -> Budget:
    """Return the budget that the coordinator watches; that of a shard is its part of the session's."""
    from pytest_toolemu.scheduling.budget import Budget

    settings, seconds, share = session.settings, session.settings.deadline, 1.0
    if settings.shard:
        from pytest_toolemu.sessions.shard_assignment import Shard

        share = 1 / Shard.of(settings.shard).count
    return Budget(
        settings.budget_usd and settings.budget_usd * share,
        settings.budget_tokens and max(1, int(settings.budget_tokens * share)),
        seconds,
        seconds and session.started + seconds,
    )


def _maxfail(config: pytest.Config) -> int:
    """Return the number of failures after which pytest ends the session; 0 for never."""
    option = config.option
    stepwise = (1 + getattr(option, "stepwise_skip", False)) * getattr(option, "stepwise", False)
    return min(filter(None, (option.maxfail, stepwise)), default=0)
