"""How long a session will still take: extrapolated from the cases that were run to those that still have to be."""

from __future__ import annotations

from typing import NamedTuple

from pytest_toolemu.scheduling.coordinator import Coordinator


class TimeEstimate(NamedTuple):
    """The remaining time and its basis: ``cases`` were run in ``elapsed`` seconds, and ``cases_left`` will be."""

    seconds: int
    elapsed: float
    cases: int
    cases_left: int


class RemainingTime:
    """Estimates the remaining time of one session, from its first case on."""

    def __init__(self) -> None:
        self._begun: float | None = None

    def estimate(self, coordinator: Coordinator, now: float) -> TimeEstimate | None:
        """Return an estimate; None as long as no case was run. Resumed cases take no time, so they do not count.

        ``now`` is in seconds of a monotonic clock. The first call that finds a case starts the measurement.
        """
        if self._begun is None and coordinator.counts.running + coordinator.counts.completed:
            self._begun = now
        cases, cases_left = coordinator.counts.completed - coordinator.counts.resumed, coordinator.left_to_run
        if self._begun is None or cases <= 0 or cases_left <= 0:
            return None
        elapsed = now - self._begun
        return TimeEstimate(int(elapsed / cases * cases_left), elapsed, cases, cases_left)
