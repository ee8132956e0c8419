"""One line for each failed case in pytest's short summary, also in color.

pytest fits these lines to the terminal, but cannot measure a line that contains color, and lets the message alone take
the whole width.
"""

from __future__ import annotations

import os
import unicodedata
from typing import Any, Final

import pytest

from pytest_toolemu.plugin.output.run_property import PROPERTY

_WORDS: Final = {"failed": "FAILED ", "error": "ERROR "}
_DASH: Final = " - "
_ELLIPSIS: Final = "..."
# With one of these variables, pytest prints messages in full.
_FULL: Final = ("CI", "BUILD_NUMBER")


class ShortLines:
    """Shortens the messages of cases while pytest prints its short summary."""

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Shorten messages for the rest of this hook: details have been printed, the short summary comes next."""
        writer = config.get_terminal_writer()
        if not writer.hasmarkup or config.get_verbosity() >= 2 or any(map(os.environ.get, _FULL)):
            return
        for category, word in _WORDS.items():
            for report in terminalreporter.stats.get(category, []):
                if PROPERTY in dict(getattr(report, "user_properties", ())):
                    # Since pytest 9.2, the method takes the structured ID of the report.
                    node = config.cwd_relative_nodeid(getattr(report, "id", report.nodeid))
                    _shorten(report, writer.fullwidth - columns(f"{word}{node}{_DASH}"))


def _shorten(report: Any, room: int) -> None:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        message = fitting(crash.message.partition("\n")[0], room)
        if message:
            crash.message = message
        else:
            report.longrepr.reprcrash = None


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(map(_columns, text))


def fitting(text: str, room: int) -> str:
    """Return the text in at most so many columns, with an ellipsis if it is cut; empty if nothing of it fits."""
    if columns(text) <= room:
        return text
    beginning, room_left = "", room - len(_ELLIPSIS)
    for char in text:
        room_left -= _columns(char)
        if room_left < 0:
            break
        beginning += char
    return f"{beginning}{_ELLIPSIS}" if beginning else ""


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
