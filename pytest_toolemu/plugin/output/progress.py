"""Shows the progress of a session: to the right of the cursor in a terminal, else a line now and then."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

import pytest

from pytest_toolemu.formats.text import clock_text
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
# Erase to the right of the cursor and below it.
_CLEAR: Final = "\x1b[J"


def fitting(parts: Sequence[str], room: int) -> str:
    """Join the first parts that fit into ``room`` characters."""
    count = next((n for n in range(len(parts), 0, -1) if len(", ".join(parts[:n])) <= room), 0)
    return ", ".join(parts[:count])


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
                self._write(f"\ntoolemu: {', '.join(parts)}\n")

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

    def _draw(self, parts: Sequence[str]) -> None:
        """Draw what fits to the right of the cursor, which then returns to its place."""
        # The width that pytest sees is wrong while output is captured.
        width = os.get_terminal_size(self._output).columns or self._writer.fullwidth
        column = self._writer.width_of_current_line
        if column and not column % width:  # the next character may go to either line
            return
        text = fitting(parts, width - column % width - _MARGIN)
        self._write(f"{_CLEAR}\x1b7  \x1b[2m{text}\x1b[0m\x1b8")
        self._drawn = True

    def _write(self, text: str) -> None:
        os.write(self._output, text.encode())

    def _parts(self, now: float) -> list[str]:
        """Return what can be shown, the most important first."""
        coordinator, requests = self._coordinator, self._coordinator.requests
        counts = coordinator.counts
        running = counts.running + counts.pending_writes
        parts = [self.stage() if self.stage is not None else f"{counts.completed}/{coordinator.total} done"]
        if (end := self._remaining.estimate(coordinator, now)) is not None:
            parts.append(f"{clock_text(end.seconds)} left")
        if requests.limits:
            parts.append(requests.budget.spent_text)
        if self.stage is None:
            stalled = f" ({counts.stalled} stalled)" if counts.stalled else ""
            parts += [
                f"{running} running{stalled}",
                f"{max(0, coordinator.total - counts.completed - running)} waiting",
            ]
        if requests.limits:
            limits = sorted({int(limit.limit) for limit in list(requests.limits.values())})
            parts += [f"{self._rate(now, requests.answered):.0f} calls/s", f"{requests.tokens:,} tokens"]
            parts.append(f"limit {', '.join(map(str, limits))}")
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
