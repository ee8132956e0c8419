"""The items of one process, and the scheduler that runs their cases."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest

from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.plugin.execution import xdist
from pytest_toolemu.plugin.execution.case_logs import CaseLogs
from pytest_toolemu.plugin.execution.lookahead import needs
from pytest_toolemu.plugin.session import ITEM, CaseError, ToolemuSession
from pytest_toolemu.scheduling.coordinator_messages import ItemsCollected
from pytest_toolemu.scheduling.job import CaseNotRun, Job, JobError, StoredRun
from pytest_toolemu.scheduling.worker import NoResultError, WorkerScheduler

if TYPE_CHECKING:
    from pytest_toolemu.core.run import Run

# A case's own time-out ends it; this long after, in seconds, it is taken for stuck.
_OVERTIME: Final = 30.0

JobAhead = Callable[[pytest.Function, dict[str, Any]], Job]
"""The job of an item that is run before its turn, given the values of the project's fixtures that it needs."""


class ItemScheduler:
    """Knows the items by index. Runs are kept in memory for a while, for the items of this process that ask soon."""

    def __init__(self, session: ToolemuSession, items: list[pytest.Item], job_ahead: JobAhead) -> None:
        self.schedule = WorkerScheduler(session.loop, _describe_error, session.settings.timeout + _OVERTIME)
        self.fixtures = session.fixtures
        self.fixtures.leaving = self.schedule.withdraw
        self._index = {item: index for index, item in enumerate(items)}
        self._items = items
        self._job_ahead = job_ahead
        self._kept: dict[str, Run] = {}
        self._logs = CaseLogs(session.config)
        session.config.pluginmanager.register(self._logs, "toolemu-logs")
        self._most = 2 * session.settings.concurrency
        if not session.is_worker:
            session.nodeids = [item.nodeid for item in items]
        xdist.connect(session, self.schedule)
        self.schedule.send(ItemsCollected(sum(ITEM in item.stash for item in items)))
        if xdist.runs_ahead(session.config, session):
            self._consider(items)

    def start(self) -> None:
        """Offer the coordinator what can be run now."""
        self.schedule.offer(self._ready())

    def keep(self, run: Run, path: Path) -> None:
        """A run that has just been stored."""
        self._kept[str(path)] = run
        if len(self._kept) > self._most:
            self._kept.pop(next(iter(self._kept)))

    def result(self, item: pytest.Item, job: Job) -> StoredRun | CaseNotRun:
        """Return the result of the item's job, wherever it has run. Without one, raise, skip, or end the session."""
        try:
            result = self.schedule.result(self._index[item], job, meanwhile=self.start)
        except NoResultError as none:
            if none.kind == "broken":
                raise CaseError(f"broken: {none}") from None
            if none.kind == "stopped":
                item.session.shouldstop = item.session.shouldstop or f"toolemu: {none}"
            pytest.skip(f"not run: {none}")
        if isinstance(result, JobError):
            _raise(result)
        return result

    def run(self, result: StoredRun) -> tuple[Run, Path]:
        """Return the run of a result, and the path of its record."""
        path = Path(result.path)
        return self._kept.pop(result.path, None) or load_run(path), path

    def close(self) -> None:
        """Nothing is in flight any more."""
        self.schedule.close()
        self._logs.close()

    def _consider(self, items: list[pytest.Item]) -> None:
        for index, item in enumerate(items):
            if isinstance(item, pytest.Function) and ITEM in item.stash:
                needed = needs(item)
                if needed is not None:
                    self.fixtures.add(index, needed)

    def _ready(self) -> dict[int, Job]:
        ready = ((index, self._items[index]) for index in self.fixtures.ready())
        return {
            index: self._job_ahead(item, self.fixtures.values(index))
            for index, item in ready
            if isinstance(item, pytest.Function)
        }


def _describe_error(error: BaseException) -> JobError:
    """Return what a job raised as a result, for the item that waits, which may be in another process."""
    if isinstance(error, CaseError | UsageError):
        return JobError(str(error), is_usage_error=isinstance(error, UsageError))
    return JobError("".join(traceback.format_exception(error)))


def _raise(error: JobError) -> NoReturn:
    raise (UsageError if error.is_usage_error else CaseError)(error.message)
