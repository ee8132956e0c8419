"""Shows the progress of a session: to the right of the cursor in a terminal, else a line now and then."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from pytest_toolemu.formats.clock_text import clock_text
from pytest_toolemu.scheduling.coordinator import RemainingTime

if TYPE_CHECKING:
    from pytest_toolemu.scheduling.coordinator import Coordinator

# In seconds: how often a line is written if the output is not a terminal, and the period of the rate of calls.
_HEARTBEAT: Final = 60.0
_RATE: Final = 10.0
# Columns between pytest's output and the display, and at the end of the line. For so many seconds after pytest has
# written, its line is not touched.
_MARGIN: Final = 3
_HOLD: Final = 0.1
_SEPARATOR: Final = ", "
# Erase to the right of the cursor and below it.
_CLEAR: Final = "\x1b[J"


class ProgressItem(NamedTuple):
    """A number and its rank: if there is no room for all, rank 1 is shown before rank 2."""

    rank: int
    text: str


def fitting(parts: Sequence[ProgressItem], room: int | None) -> str:
    """Join as many parts as fit into ``room`` characters, the first ranks first; None means no limit."""
    chosen: list[ProgressItem] = []
    for part in sorted(parts):
        if room is None or len(_SEPARATOR.join(one.text for one in (*chosen, part))) <= room:
            chosen.append(part)
    return _SEPARATOR.join(part.text for part in parts if part in chosen)


class Progress:
    """Draws the state of the coordinator. The cursor returns to its place, so pytest writes over the display.

    Must be created while no output is captured; it writes to the output as it is then.
    """

    def __init__(self, config: pytest.Config, coordinator: Coordinator, output: int = 1) -> None:
        self._writer = config.get_terminal_writer()
        self._coordinator = coordinator
        self._output = os.dup(output)
        self._is_terminal = os.isatty(self._output) and os.environ.get("TERM") != "dumb"
        self._lock = threading.Lock()
        self._last_line = self._written_at = monotonic()
        self._remaining = RemainingTime()
        self._answered: deque[tuple[float, int]] = deque()
        self._drawn = self._closed = False
        self.stage: Callable[[], str] | None = None
        """Returns what is shown instead of the number of cases, while something else is done before them."""

    def tick(self) -> None:
        """Draw, a few times a second."""
        now = monotonic()
        with self._lock, contextlib.suppress(OSError, ValueError):
            if self._closed or not (self._coordinator.total or self.stage):
                return
            parts = self._parts(now)
            if self._is_terminal and now - self._written_at > _HOLD:
                self._draw(parts)
            elif not self._is_terminal and now - self._last_line >= _HEARTBEAT:
                self._last_line = now
                self._write(f"\ntoolemu: {fitting(parts, None)}\n")

    def clear(self) -> None:
        """Erase the display, because pytest is about to write."""
        with self._lock, contextlib.suppress(OSError):
            self._written_at = monotonic()
            if self._drawn:
                self._write(_CLEAR)
                self._drawn = False

    def close(self) -> None:
        """Draw nothing more."""
        self.clear()
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._output)

    def _draw(self, parts: Sequence[ProgressItem]) -> None:
        """Draw what fits to the right of the cursor, which then returns to its place."""
        width, column = self._writer.fullwidth, self._writer.width_of_current_line
        if column and not column % width:  # the next character may go to either line
            return
        text = fitting(parts, width - column % width - _MARGIN)
        self._write(f"{_CLEAR}\x1b7  \x1b[2m{text}\x1b[0m\x1b8")
        self._drawn = True

    def _write(self, text: str) -> None:
        os.write(self._output, text.encode())

    def _parts(self, now: float) -> list[ProgressItem]:
        """Return what can be shown, in the order in which it is shown."""
        coordinator, requests = self._coordinator, self._coordinator.requests
        running = coordinator.counts.running + coordinator.counts.pending_writes
        waiting = max(0, coordinator.total - coordinator.counts.completed - running)
        stalled = f" ({coordinator.counts.stalled} stalled)" if coordinator.counts.stalled else ""
        parts = [
            ProgressItem(1, f"{coordinator.counts.completed}/{coordinator.total} done"),
            ProgressItem(4, f"{running} running{stalled}"),
            ProgressItem(5, f"{waiting} waiting"),
        ]
        if self.stage is not None:
            parts = [ProgressItem(1, self.stage())]
        if requests.limits:
            rate = self._rate(now, requests.answered)
            parts += [ProgressItem(6, f"{rate:.0f} calls/s"), ProgressItem(7, f"{_short(requests.tokens)} tokens")]
            parts.append(ProgressItem(3, requests.budget.spent_text))
        if (end := self._remaining.estimate(coordinator, now)) is not None:
            parts.append(ProgressItem(2, f"{clock_text(end.seconds)} left"))
        if requests.limits:
            limits = sorted({int(limit.limit) for limit in list(requests.limits.values())})
            parts.append(ProgressItem(8, f"limit {', '.join(map(str, limits))}"))
        return parts

    def _rate(self, now: float, replies: int) -> float:
        """Return the recent rate of model calls, per second."""
        self._answered.append((now, replies))
        while now - self._answered[0][0] > _RATE:
            self._answered.popleft()
        since, before = self._answered[0]
        return (replies - before) / (now - since) if now > since else 0.0


def is_wanted(config: pytest.Config) -> bool:
    """Return whether to show progress: not with ``-q`` or ``-p no:terminal``, and not if nothing is run."""
    has_terminal = config.pluginmanager.hasplugin("terminalreporter")
    return has_terminal and config.get_verbosity() >= 0 and not config.option.collectonly


def _short(number: int) -> str:
    if number < 10_000:
        return f"{number:,}"
    return f"{number / 1000:,.0f} k" if number < 10_000_000 else f"{number / 1_000_000:,.1f} M"
