"""What a process of a running session is doing, for people who watch the session: a file, about once a second."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from threading import Event, Thread
from time import monotonic, time
from typing import Final

import pytest

from pytest_toolemu.analysis.run_summary import agent_name
from pytest_toolemu.core import case_timer
from pytest_toolemu.core.engine import RunSpec
from pytest_toolemu.core.run import Trajectory
from pytest_toolemu.formats.text import truncated, usd_text, visible
from pytest_toolemu.plugin.collection.item_agents import agent_title
from pytest_toolemu.plugin.output.terminal_text import resume_command
from pytest_toolemu.plugin.session import ToolemuSession
from pytest_toolemu.scheduling.budget import Budget
from pytest_toolemu.scheduling.coordinator import Coordinator, RemainingTime
from pytest_toolemu.scheduling.transport import Transport
from pytest_toolemu.scheduling.worker import WorkerScheduler
from pytest_toolemu.sessions.live_session import (
    CaseInFlight,
    CaseStage,
    ExpectedEnd,
    LiveProcess,
    RequestLimit,
    SessionProgress,
    process_start,
    remove_live,
    write_live,
)

MAIN: Final = "main"
"""The process that is not an xdist worker."""

# Seconds until the first file, which a very short session does not write at all, and between later ones.
_FIRST: Final = 0.3
_PERIOD: Final = 1.0
# A disk that hangs must not keep the session from ending.
_PATIENCE: Final = 1.0
# Models choose the names of tools, and node IDs have no limit.
_LONGEST: Final = 2000


@dataclass
class _RunningCase:
    item: pytest.Item
    spec: RunSpec
    timer: case_timer.CaseTimer
    trajectory: Trajectory | None = None


class RunningCases:
    """Cases come and go on the event loop's thread; another thread reads what they are doing."""

    def __init__(self) -> None:
        self._cases: dict[str, _RunningCase] = {}

    @contextlib.contextmanager
    def running(self, item: pytest.Item, spec: RunSpec) -> Iterator[None]:
        """Return a context in which the item's case runs."""
        case = self._cases[item.nodeid] = _RunningCase(item, spec, case_timer.begin())
        try:
            yield
        finally:
            if self._cases.get(item.nodeid) is case:
                del self._cases[item.nodeid]

    def begin(self, item: str) -> Trajectory:
        """Return a new trajectory for a case that begins now, given by the node ID of its item."""
        case = self._cases[item]
        case.trajectory = case.spec.new_trajectory()
        return case.trajectory

    def snapshot(self) -> tuple[CaseInFlight, ...]:
        """Return what every case is doing, the oldest first."""
        return tuple(_in_flight(case) for case in list(self._cases.values()))


def _in_flight(case: _RunningCase) -> CaseInFlight:
    trajectory = case.trajectory
    call = trajectory.current_call if trajectory is not None else None
    return CaseInFlight(
        item=truncated(case.item.nodeid, _LONGEST),
        case=case.spec.resolved_case.case.id,
        agent=truncated(agent_title(case.item, agent_name(case.spec.identity)), _LONGEST),
        trial=case.spec.trial,
        stage=_stage(trajectory),
        calls=len(trajectory.steps) if trajectory is not None else 0,
        tool=truncated(call.tool or call.name, _LONGEST) if call is not None else "",
        seconds=round(max(0.0, case.timer.seconds), 1),
        paused=case.timer.is_paused,
    )


def _stage(trajectory: Trajectory | None) -> CaseStage:
    if trajectory is None:
        return "starting"
    if trajectory.has_ended:
        return "judging"
    awaits_user = any(utterance.by == "agent" for utterance in trajectory.dialogue[-1:])
    return "talking" if awaits_user else "acting"


class LiveWriter:
    """Replaces the live file of this process, on a thread of its own, so that a slow disk delays nothing else.

    ``transport`` leads to the coordinator if it is in this process; else ``scheduler`` knows whether the process with
    the coordinator has died. Then the file stays as it is, as it shows what was in flight. Without a disk that can be
    written, there is no file: the session runs on.
    """

    def __init__(
        self,
        session: ToolemuSession,
        cases: RunningCases,
        transport: Transport | None,
        scheduler: WorkerScheduler | None = None,
    ) -> None:
        self._session, self._cases, self._transport, self._scheduler = session, cases, transport, scheduler
        self._name = os.environ.get("PYTEST_XDIST_WORKER", MAIN) if session.is_worker else MAIN
        self._started = process_start(os.getpid())
        self._host = socket.gethostname()
        self._remaining = RemainingTime()
        self._closed = Event()
        self._thread = Thread(target=self._write_repeatedly, name="toolemu-live", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Write nothing more, and remove the file; in the main process, also those of workers that died."""
        self._closed.set()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(_PATIENCE)
        if not self._thread.is_alive() and not self._is_orphaned:
            remove_live(self._session.folder, "" if self._name == MAIN else self._name)

    def write(self) -> None:
        """Replace the file now. Raise OSError if the disk refuses."""
        content = self._content()
        # Checked after the cases were read: they are canceled once the other process is lost.
        if not self._is_orphaned:
            write_live(self._session.folder, content)

    @property
    def _is_orphaned(self) -> bool:
        return self._scheduler is not None and self._scheduler.is_coordinator_lost

    def _write_repeatedly(self) -> None:
        period = _FIRST
        while not self._closed.wait(period):
            # Whatever goes wrong here, such as a full disk, must not disturb the session.
            with contextlib.suppress(Exception):
                self.write()
            period = _PERIOD

    def _content(self) -> LiveProcess:
        return LiveProcess(
            process=self._name,
            pid=os.getpid(),
            started=self._started,
            host=self._host,
            updated=round(time(), 1),
            cases=self._cases.snapshot(),
            progress=self._transport.read(self._progress) if self._transport is not None else None,
        )

    @cached_property
    def _resume(self) -> str:
        return visible(resume_command(self._session))

    def _progress(self, coordinator: Coordinator) -> SessionProgress:
        outcomes = Counter(run.outcome or "broken" for run in list(self._session.run_summaries.values()))
        requests, end = coordinator.requests, self._remaining.estimate(coordinator, monotonic())
        return SessionProgress(
            total=coordinator.total,
            completed=coordinator.counts.completed,
            resumed=coordinator.counts.resumed,
            running=coordinator.counts.running + coordinator.counts.pending_writes,
            stalled=coordinator.counts.stalled,
            tokens=requests.budget.spent_tokens,
            cost=requests.budget.spent_text if requests.limits else "",
            budget=_budget_text(requests.budget),
            expected_end=ExpectedEnd(**end._asdict()) if end is not None else None,
            request_limits=tuple(
                RequestLimit(
                    name=key.rsplit(" (", 1)[0],  # without the hash of its credential
                    limit=int(limit.limit),
                    in_flight=limit.in_flight,
                    queued=limit.queued,
                    refused=limit.refused,
                )
                for key, limit in requests.limits.items()
            ),
            problems=tuple(dict.fromkeys(requests.breaker.open.values())),
            outcomes=dict(sorted(outcomes.items())),
            resume=self._resume,
            directory=str(self._session.config.invocation_params.dir),
        )


def _budget_text(budget: Budget) -> str:
    parts = [f"{usd_text(budget.usd)} USD"] if budget.usd is not None else []
    parts += [f"{budget.tokens:,} tokens"] if budget.tokens is not None else []
    parts += [f"{budget.seconds:g} s"] if budget.seconds is not None else []
    return ", ".join(parts)
