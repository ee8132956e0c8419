"""The width of the terminal, and text wrapped to it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

import pytest

from pytest_toolemu.plugin.worker_input import WorkerInput


def terminal_width(config: pytest.Config) -> int | None:
    """Return the columns of the terminal that pytest writes to; None if it writes to no terminal.

    An xdist worker gets the width from its controller.
    """
    if hasattr(config, "workerinput"):
        worker_input = WorkerInput.received(config)
        return worker_input.terminal_width if worker_input else None
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    return int(config.get_terminal_writer().fullwidth) if reporter is not None and reporter.isatty else None


def wrapped(lines: Iterable[str], width: int | None, more: str = "  ") -> list[str]:
    """Break lines between words to fit into ``width`` columns; None means no limit.

    Continuation lines are indented like their line, plus ``more``. A longer word, such as a path, stays whole.
    """
    if width is None:
        return list(lines)
    result = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        parts = textwrap.wrap(
            line, width, subsequent_indent=indent + more, break_long_words=False, break_on_hyphens=False
        )
        result += parts if len(line) > width else [line]
    return result


class Wrapping:
    """Writes lines as pytest's reporter does, broken between words."""

    def __init__(self, reporter: pytest.TerminalReporter, width: int | None) -> None:
        self._reporter = reporter
        self.width = width

    def write_line(self, line: str, **markup: bool) -> None:
        """Write one line of text; ``markup`` is that of pytest's terminal writer, such as ``red=True``."""
        for part in wrapped([line], self.width):
            self._reporter.write_line(part, **markup)
