"""Builds what a session works with: its components, servers, budget, scheduler, and coordinator.

Each service is built on first use, and its modules are imported then: a pytest run without cases pays for none of them.
Functions that need one or two services take those; hooks and jobs, which need many, take a ``Services``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_toolemu.plugin.execution.process_end import Signals
from pytest_toolemu.plugin.session import TerminalNote, ToolemuSession
from pytest_toolemu.plugin.session_files import SessionFiles
from pytest_toolemu.plugin.session_models import SessionModels

if TYPE_CHECKING:
    from pytest_toolemu.plugin.execution.item_scheduler import ItemScheduler
    from pytest_toolemu.plugin.execution.lookahead import ActiveFixtures
    from pytest_toolemu.plugin.execution.process_end import ProcessEnd
    from pytest_toolemu.plugin.execution.running_cases import RunningCases
    from pytest_toolemu.plugin.output.live_writer import LiveWriter
    from pytest_toolemu.plugin.output.progress import Progress
    from pytest_toolemu.scheduling.budget import Budget
    from pytest_toolemu.scheduling.coordinator_messages import Job
    from pytest_toolemu.scheduling.event_loop import CaseLoop
    from pytest_toolemu.scheduling.transport import Transport
    from pytest_toolemu.scheduling.worker import WorkerScheduler

SERVICES: pytest.StashKey[Services] = pytest.StashKey()
"""On the config: the services of this process."""

# After so many seconds, a session has started its first cases, or has many to collect. Modules that only the summary
# needs are imported then, while models answer.
_UNDER_WAY: Final = 2.0


class Services:
    """The services of one process. Attributes that are None have not been built."""

    def __init__(self, session: ToolemuSession) -> None:
        self.session = session
        self.files = SessionFiles(session)
        self.models = SessionModels(session, self.files, lambda: self.scheduler, lambda: self.transport)
        self.signals = Signals(is_worker=session.is_worker)
        self.transport: Transport | None = None
        self.progress: Progress | None = None
        self.live_writer: LiveWriter | None = None
        self.item_scheduler: ItemScheduler | None = None
        self.process_end: ProcessEnd | None = None
        self._case_loop: CaseLoop | None = None
        self._stage_scheduler: WorkerScheduler | None = None
        self._is_summary_preloaded = False

    # ---- execution

    @functools.cached_property
    def budget(self) -> Budget:
        """The budget that the coordinator in this process watches."""
        from pytest_toolemu.scheduling.budget import Budget
        from pytest_toolemu.sessions.shard_assignment import Shard

        settings = self.session.settings
        # A budget is for the whole session.
        share = 1 / Shard.of(settings.shard).count if settings.shard else 1.0
        seconds = settings.deadline
        return Budget(
            settings.budget_usd and settings.budget_usd * share,
            settings.budget_tokens and max(1, int(settings.budget_tokens * share)),
            seconds,
            seconds and self.session.started + seconds,
        )

    @property
    def case_loop(self) -> CaseLoop:
        """The event loop that runs cases."""
        if self._case_loop is None:
            from pytest_toolemu.scheduling.event_loop import CaseLoop

            self._case_loop = CaseLoop()
            self._case_loop.on_close(self.models.open_components().models.close)
        return self._case_loop

    @functools.cached_property
    def active_fixtures(self) -> ActiveFixtures:
        """The fixtures of the project that are set up in this process."""
        from pytest_toolemu.plugin.execution.lookahead import ActiveFixtures

        return ActiveFixtures()

    @functools.cached_property
    def running_cases(self) -> RunningCases:
        """The cases that run in this process."""
        from pytest_toolemu.plugin.execution.running_cases import RunningCases

        return RunningCases()

    def open_transport(self) -> Transport:
        """Return the transport to the coordinator, which this process leads; start both on the first call."""
        if self.transport is None:
            from pytest_toolemu.plugin.output import progress
            from pytest_toolemu.scheduling.coordinator import Coordinator
            from pytest_toolemu.scheduling.transport import Transport

            config, settings = self.session.config, self.session.settings
            coordinator = Coordinator(settings.concurrency, _maxfail(config), self.budget)
            self.transport = Transport(coordinator, on_tick=self._tick)
            if not self.session.is_worker and progress.is_wanted(config):
                self.progress = progress.Progress(config, coordinator)
        return self.transport

    def start_cases(self) -> None:
        """Let the coordinator start cases, now that models and keys have been checked."""
        transport, resumable = self.open_transport(), self.files.resumable_sessions
        if resumable is not None:
            indices = resumable.probable(self.session.nodeids)
            transport.update(lambda coordinator: coordinator.expect_to_resume(indices))
        transport.update(lambda coordinator: coordinator.start())

    def start_scheduler(
        self, items: list[pytest.Item], lookahead_job: Callable[[pytest.Function, dict[str, Any]], Job]
    ) -> ItemScheduler:
        """Return the scheduler of this process's items; create it and connect it to the coordinator on the first call.

        ``lookahead_job`` returns the job of an item that runs before its turn, given the values of its fixtures.
        """
        if self.item_scheduler is None:
            from pytest_toolemu.plugin.execution import connections
            from pytest_toolemu.plugin.execution.item_scheduler import ItemScheduler

            session = self.session
            if not session.is_worker:
                session.nodeids = [item.nodeid for item in items]
            self.item_scheduler = ItemScheduler(
                session.config, session.settings, items, self.case_loop, self.active_fixtures, lookahead_job
            )
            if session.worker_input is not None and session.worker_input.channel is not None:
                connections.connect_to_controller(self.scheduler, session.worker_input.channel)
                self._start_live_writer()
            else:
                transport = self.open_transport()
                self.start_cases()
                connections.connect_in_process(self.scheduler, transport)
            self.item_scheduler.announce()
        return self.item_scheduler

    @property
    def scheduler(self) -> WorkerScheduler:
        """The scheduler of this process. It exists while cases run, and while worlds are built."""
        if self.item_scheduler is not None:
            return self.item_scheduler.scheduler
        if self._stage_scheduler is None:
            raise RuntimeError("a model was called before the case scheduler was started")
        return self._stage_scheduler

    def start_stage_scheduler(self) -> None:
        """Connect this process with the coordinator, to send requests before the first case."""
        from pytest_toolemu.plugin.execution import connections
        from pytest_toolemu.plugin.execution.item_scheduler import describe_error
        from pytest_toolemu.scheduling.worker import WorkerScheduler

        with self.exempt():
            self._stage_scheduler = WorkerScheduler(
                self.case_loop, lambda _, error: describe_error(error), self.session.settings.timeout
            )
            connections.connect_stage(self._stage_scheduler, self.open_transport())

    def close_stage_scheduler(self) -> None:
        """Sign off from the coordinator. Models that are still asked get no more permits."""
        if self._stage_scheduler is not None:
            self._stage_scheduler.close()

    def _start_live_writer(self) -> None:
        """Write what this process is doing, for those who watch the session; once."""
        if self.live_writer is None:
            from pytest_toolemu.plugin.output.live_writer import LiveWriter

            scheduler = self.scheduler if self.transport is None else None
            self.live_writer = LiveWriter(self.session, self.running_cases, self.transport, scheduler)
            self.live_writer.start()

    def _tick(self) -> None:
        """Update what is shown; called several times a second on the transport's thread."""
        if self.live_writer is None and self.transport is not None and self._has_cases(self.transport):
            with contextlib.suppress(Exception):
                self._start_live_writer()
        if not self._is_summary_preloaded and not self.session.is_worker and self._is_under_way:
            self._is_summary_preloaded = True
            # An exception would stop the coordinator's timer. The summary itself will show it.
            with contextlib.suppress(Exception):
                from pytest_toolemu.plugin.output.preload_summary import preload_summary

                preload_summary()
        if self.progress is not None:
            self.progress.tick()

    @property
    def _is_under_way(self) -> bool:
        if self.transport is None or time() - self.session.started < _UNDER_WAY:
            return False
        return self._has_cases(self.transport)

    @staticmethod
    def _has_cases(transport: Transport) -> bool:
        return transport.read(lambda coordinator: coordinator.total > 0)

    # ---- the end

    def limit_exit(self) -> None:
        """Handle signals, and limit the time that this process takes to end; once.

        Must be called before the code of agents is imported.
        """
        if self.process_end is None:
            from pytest_toolemu.plugin.execution.process_end import ProcessEnd
            from pytest_toolemu.plugin.output.terminal_text import report_late

            session = self.session
            self.signals.handle_termination()
            self.process_end = ProcessEnd(
                session.settings.exit_timeout, self.signals.hurry, functools.partial(report_late, session)
            )

    def exempt(self) -> contextlib.AbstractContextManager[None]:
        """Return a context: what the main thread starts inside it does not count as left behind by an agent."""
        return self.process_end.exempt() if self.process_end else contextlib.nullcontext()

    def has_results(self) -> bool:
        """Return whether there is anything to summarize: a result, a shard, or a message of a worker."""
        if self.session.run_summaries or self.session.has_built_worlds:
            return True
        if self.session.shard_manifest or self.session.late_messages_file.exists():
            return True
        if self.session.unreported_output_file.exists():
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
        if self.item_scheduler is not None:
            if finish_running and self.session.is_worker:
                self.scheduler.drain()
            self.item_scheduler.close()
        if self._case_loop is not None:
            self._case_loop.close(self.signals.hurry)
            if finish_running and self._case_loop.leftovers:
                self._report_tasks(self._case_loop.leftovers)
            self._case_loop = None
        self._save_output()
        if self.transport is not None:
            self.transport.close()
        if self.live_writer is not None:  # the transport's thread may have started it until now
            self.live_writer.close()

    def _save_output(self) -> None:
        """Save what cases have printed that no item has reported, and will not report any more."""
        from pytest_toolemu.plugin.output.terminal_text import append_output

        if self.item_scheduler is not None:
            append_output(self.session, self.item_scheduler.capture.close())
        if self.transport is not None:
            results = self.transport.read(lambda coordinator: coordinator.undelivered_results())
            nodeids = self.session.nodeids
            append_output(
                self.session, {nodeids[index]: one.sections for index, one in results.items() if one.sections}
            )

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


def _maxfail(config: pytest.Config) -> int:
    """Return the number of failures after which pytest ends the session; 0 for never."""
    option = config.option
    stepwise = (1 + getattr(option, "stepwise_skip", False)) * getattr(option, "stepwise", False)
    return min(filter(None, (option.maxfail, stepwise)), default=0)
