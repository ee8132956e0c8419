"""Runs the cases of this process's items: maps items to the indices by which the coordinator knows their cases."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.plugin.execution.captured_output import CaseCapture, CaseLogs
from pytest_toolemu.plugin.execution.lookahead import ActiveFixtures, needed_fixtures
from pytest_toolemu.plugin.session import RESOLVED_CASE, CaseError
from pytest_toolemu.scheduling.coordinator_messages import CaseNotRun, CaseRun, ItemsCollected, Job, JobError
from pytest_toolemu.scheduling.event_loop import CaseLoop
from pytest_toolemu.scheduling.worker import NoResultError, WorkerScheduler
from pytest_toolemu.settings import Settings

# A case's own timeout ends it; if it has not ended so many seconds after that, it is stuck.
_OVERTIME: Final = 30.0

LookaheadJob = Callable[[pytest.Function, dict[str, Any]], Job]
"""Returns the job of an item that runs before its turn, given the values of the project's fixtures that it needs."""


class ItemScheduler:
    """The items of one process and the scheduler that runs their cases.

    Runs stay in memory for a while, so that items of this process need not read them back from their records.
    """

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        items: list[pytest.Item],
        loop: CaseLoop,
        fixtures: ActiveFixtures,
        lookahead_job: LookaheadJob,
    ) -> None:
        self.scheduler = WorkerScheduler(loop, self._error_of, settings.timeout + _OVERTIME)
        self._fixtures = fixtures
        fixtures.before_teardown = self.scheduler.withdraw
        self._items = items
        self._index = {item: index for index, item in enumerate(items)}
        self._lookahead_job = lookahead_job
        self._runs_ahead = _runs_ahead(config, settings)
        self._kept_runs: dict[str, Run] = {}
        self._max_kept_runs = 2 * settings.concurrency
        self._logs = CaseLogs(config)
        self.capture = CaseCapture(config)
        config.pluginmanager.register(self.capture, "toolemu-capture")

    def announce(self) -> None:
        """Tell the coordinator how many cases there are, and find those that may run before their turn."""
        self.scheduler.send(ItemsCollected(sum(RESOLVED_CASE in item.stash for item in self._items)))
        if self._runs_ahead:
            for index, item in enumerate(self._items):
                if isinstance(item, pytest.Function) and RESOLVED_CASE in item.stash:
                    needed = needed_fixtures(item)
                    if needed is not None:
                        self._fixtures.add_item(index, needed)

    def offer_ready(self) -> None:
        """Offer the coordinator the cases that have become ready to run before their turn."""
        ready = ((index, self._items[index]) for index in self._fixtures.take_ready())
        self.scheduler.offer(
            {
                index: self._lookahead_job(item, self._fixtures.values(index))
                for index, item in ready
                if isinstance(item, pytest.Function)
            }
        )

    def result(self, item: pytest.Item, job: Job) -> CaseRun | CaseNotRun:
        """Wait for the result of the item's job, wherever it runs, and attach what the case printed to the item.

        If there is none, raise CaseError or UsageError, or skip the item, and end a session that is over.
        """
        try:
            result = self.scheduler.result(self._index[item], job, meanwhile=self.offer_ready)
        except NoResultError as error:
            if error.kind == "broken":
                raise CaseError(f"broken: {error}") from None
            if error.kind == "stopped":
                item.session.shouldstop = item.session.shouldstop or f"toolemu: {error}"
            pytest.skip(f"not run: {error}")
        for name, text in result.sections.items():
            item.add_report_section("setup", name, text)
        if isinstance(result, JobError):
            _raise(result)
        return result

    def keep_run(self, run: Run, path: Path) -> None:
        """Keep a run in memory that has just been stored at ``path``."""
        self._kept_runs[str(path)] = run
        if len(self._kept_runs) > self._max_kept_runs:
            self._kept_runs.pop(next(iter(self._kept_runs)))

    def read_run(self, stored: CaseRun) -> Run:
        """Return a stored run, from memory or from its record."""
        return self._kept_runs.pop(stored.path, None) or load_run(Path(stored.path))

    def _error_of(self, index: int, error: BaseException) -> JobError:
        return replace(describe_error(error), sections=self.capture.take(self._items[index].nodeid))

    def close(self) -> None:
        """Sign off from the coordinator, and collect no more log records."""
        self.scheduler.close()
        self._logs.close()


def describe_error(error: BaseException) -> JobError:
    """Return what a job raised as a result, for the item that waits, which may be in another process."""
    if isinstance(error, CaseError | UsageError):
        return JobError(str(error), is_usage_error=isinstance(error, UsageError))
    return JobError("".join(traceback.format_exception(error)))


def _raise(error: JobError) -> NoReturn:
    raise (UsageError if error.is_usage_error else CaseError)(error.message)


def _runs_ahead(config: pytest.Config, settings: Settings) -> bool:
    """Return whether cases may run before their turn; not while the debugger stops at the item whose turn it is."""
    has_debugger = config.getoption("usepdb", False) or config.getoption("trace", False)
    return settings.run_ahead == "auto" and not has_debugger
