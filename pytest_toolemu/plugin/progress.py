"""How far the session is, while it runs: right of the cursor in a terminal, else a line now and then."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pytest_toolemu.flight.hub import Hub

# Where the output is no terminal, in seconds: a line so often. And over how long the rate of calls is taken.
_HEARTBEAT: Final = 60.0
_RATE: Final = 10.0
# So many columns are worth writing into; after pytest has written, its line is left alone so long.
_LEAST: Final = 12
_HOLD: Final = 0.1


class Progress:
    """Draws what a hub knows. pytest does not notice: the cursor stays where it was, and what it writes goes on top.

    Made while nothing is captured; writes to the output as it was then.
    """

    def __init__(self, config: pytest.Config, hub: Hub) -> None:
        self._writer = config.get_terminal_writer()
        self._hub = hub
        self._output = os.dup(1)
        self._is_terminal = os.isatty(self._output) and os.environ.get("TERM") != "dumb"
        self._lock = threading.Lock()
        self._begun = self._told = self._held = time.monotonic()
        self._answered: deque[tuple[float, int]] = deque()
        self._drawn = self._closed = False

    def tick(self) -> None:
        """Draw, a few times a second."""
        now = time.monotonic()
        with self._lock, contextlib.suppress(OSError, ValueError):
            if self._closed or not self._hub.total:
                return
            text = self._text(now)
            if self._is_terminal and now - self._held > _HOLD:
                room = self._writer.fullwidth - self._writer.width_of_current_line - 3
                if room >= _LEAST:
                    self._write(f"\x1b7  \x1b[2m{text[:room]}\x1b[0m\x1b[K\x1b8")
                    self._drawn = True
            elif not self._is_terminal and now - self._told >= _HEARTBEAT:
                self._told = now
                self._write(f"\ntoolemu: {text}\n")

    def clear(self) -> None:
        """Make room: pytest is about to write."""
        with self._lock, contextlib.suppress(OSError):
            self._held = time.monotonic()
            if self._drawn:
                self._write("\x1b[K")
                self._drawn = False

    def close(self) -> None:
        """Draw nothing more."""
        self.clear()
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._output)

    def _write(self, text: str) -> None:
        os.write(self._output, text.encode())

    def _text(self, now: float) -> str:
        hub = self._hub
        running = hub.running + hub.unkept
        waiting = max(0, hub.total - hub.finished - running)
        held = f" ({hub.held} held up)" if hub.held else ""
        parts = [f"{hub.finished}/{hub.total} done, {running} running{held}, {waiting} waiting"]
        requests = hub.requests
        if requests.throttles:
            parts.append(f"{self._rate(now, requests.answered):.0f} calls/s, {_short(requests.tokens)} tokens")
            parts.append(hub.budget.spent_text)
        if 0 < hub.finished < hub.total:
            left = (now - self._begun) / hub.finished * (hub.total - hub.finished)
            parts.append(f"{int(left) // 60}:{int(left) % 60:02} left")
        if requests.throttles:
            limits = sorted({int(throttle.limit) for throttle in list(requests.throttles.values())})
            parts.append(f"limit {', '.join(map(str, limits))}")
        return ", ".join(parts)

    def _rate(self, now: float, answered: int) -> float:
        """Calls a second, of late."""
        self._answered.append((now, answered))
        while now - self._answered[0][0] > _RATE:
            self._answered.popleft()
        since, before = self._answered[0]
        return (answered - before) / (now - since) if now > since else 0.0


def wanted(config: pytest.Config) -> bool:
    """Tell whether anybody looks: not with ``-q`` or ``-p no:terminal``, and not where nothing is run."""
    has_terminal = config.pluginmanager.hasplugin("terminalreporter")
    return has_terminal and config.get_verbosity() >= 0 and not config.option.collectonly


def _short(number: int) -> str:
    if number < 10_000:
        return f"{number:,}"
    return f"{number / 1000:,.0f} k" if number < 10_000_000 else f"{number / 1_000_000:,.1f} M"
