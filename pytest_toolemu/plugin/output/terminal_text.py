"""The width of the terminal, and text wrapped to it."""

from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from pytest_toolemu.formats.files.private_folders import make_folder, opener_in
from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.plugin.session import ToolemuSession, WorkerInput, relative_path


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


def setting_text(value: object) -> str:
    """Return the value of a setting as text; several values in one line."""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


class Wrapping:
    """Writes lines as pytest's reporter does, broken between words."""

    def __init__(self, reporter: pytest.TerminalReporter, width: int | None) -> None:
        self._reporter = reporter
        self.width = width

    def write_line(self, line: str, **markup: bool) -> None:
        """Write one line of text; ``markup`` is that of pytest's terminal writer, such as ``red=True``."""
        for part in wrapped([line], self.width):
            self._reporter.write_line(part, **markup)


def report_late(session: ToolemuSession, text: str) -> None:
    """Report something at the very end of this process.

    A worker writes it to a file for the summary of the controller, which waits for its workers to end: a worker's
    standard error is not shown, and its channels are closed before the interpreter ends.
    """
    text = redact(text)
    if session.is_worker:
        path = session.late_messages_file
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8", errors="replace") as file:
                file.write(f"{text}\n")
    else:
        capture = session.config.pluginmanager.getplugin("capturemanager")
        if capture is not None:  # an agent may end the process in the middle of a test
            capture.suspend_global_capture()
        with contextlib.suppress(OSError):  # an agent may have closed it
            os.write(2, f"toolemu: {text}\n".encode(errors="replace"))


def take_late_messages(session: ToolemuSession) -> list[str]:
    """Return what workers have left for the summary, each line once, and remove the file."""
    try:
        lines = session.late_messages_file.read_text(encoding="utf-8").splitlines()
        session.late_messages_file.unlink()
    except OSError:
        return []
    return list(dict.fromkeys(lines))


def append_output(session: ToolemuSession, outputs: Mapping[str, Mapping[str, str]]) -> None:
    """Append sections of output, by node ID, to a file of the session, which all its processes share."""
    if not outputs:
        return
    text = "".join(
        f"==== {item}: {name}\n{content.rstrip()}\n"
        for item, sections in outputs.items()
        for name, content in sections.items()
    )
    path = session.unreported_output_file
    with contextlib.suppress(OSError):  # the disk is full; that has been reported
        make_folder(path.parent, private=session.settings.run_dir_mode == "private")
        with open(path, "a", encoding="utf-8", errors="replace", opener=opener_in(path.parent)) as file:
            file.write(redact(text))


def unreported_output_lines(session: ToolemuSession) -> list[str]:
    """Return a line for the summary that names the file, if there is one."""
    path = session.unreported_output_file
    if not path.exists():
        return []
    return [f"output of interrupted cases, and of cases after their end: {relative_path(path)}"]
