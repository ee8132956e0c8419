"""Collects what cases print, by case.

pytest captures output while an item runs, and assigns it to that item. Cases run ahead of their items and several at a
time: their output would go to another item, or, between two items, to the terminal.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.plugin.execution.captured_output.case_output import (
    CURRENT,
    CaseOutput,
    LiveLines,
    Sink,
    StreamName,
    TextTail,
)

_NAMES: Final[tuple[StreamName, ...]] = ("stdout", "stderr")


class CaseCapture:
    """Collects the output of the cases of this process, by node ID. A plugin while cases run.

    pytest replaces ``sys.stdout`` before and after each item, and logging handlers keep the stream that was in place
    when they were created. So each stream object gets a ``write`` that knows the case, as long as this plugin is
    registered.
    """

    def __init__(self, config: pytest.Config) -> None:
        method = config.getoption("capture", "no")
        # Nobody sees what an xdist worker prints, so that -s does not apply to it.
        is_worker = hasattr(config, "workerinput")
        self._is_collected, self._is_live = is_worker or method != "no", not is_worker and method in ("no", "tee-sys")
        self._outputs: dict[str, CaseOutput] = {}
        self._originals: dict[tuple[int, str], tuple[Any, str, Callable[..., Any]]] = {}
        self._shown: dict[StreamName, Callable[[str], object]] = {}
        self._process = os.getpid()
        self._is_debugging = False
        self.redirect()

    @contextlib.contextmanager
    def collect(self, item: str) -> Iterator[CaseOutput]:
        """Collect what is printed and logged inside this context: by this task, and the tasks and threads it starts."""
        self.redirect()
        output = self._outputs.get(item) or self._outputs.setdefault(item, self._new_output())
        token = CURRENT.set(output)
        try:
            yield output
        finally:
            CURRENT.reset(token)

    def take(self, item: str) -> dict[str, str]:
        """Return the sections of a case's output for its item."""
        output = self._outputs.get(item)
        return output.take_sections() if output else {}

    def close(self) -> dict[str, dict[str, str]]:
        """Restore the streams. Return the output that no item has reported, by node ID."""
        for stream, name, original in self._originals.values():
            with contextlib.suppress(AttributeError, TypeError):
                delattr(stream, name)
                if getattr(stream, name) != original:  # it was an attribute of the object before, too
                    setattr(stream, name, original)
        self._originals.clear()
        return {item: sections for item in self._outputs if (sections := self.take(item))}

    def redirect(self) -> None:
        """Redirect the streams that are in use now."""
        for stream_name in _NAMES:
            for stream in (getattr(sys, f"__{stream_name}__"), getattr(sys, stream_name)):
                if stream is not None and (id(stream), "write") not in self._originals:
                    self._redirect(stream, stream_name)

    # ---- hooks

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Redirect the streams by which pytest has replaced those of the process."""
        self.redirect()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        """Redirect the streams of fixtures such as ``capsys``."""
        self.redirect()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self) -> None:
        """Redirect the streams between two items."""
        self.redirect()

    def pytest_enter_pdb(self) -> None:
        """Leave all output to the debugger, which an agent may start with ``breakpoint()``."""
        self._is_debugging = True

    def pytest_leave_pdb(self) -> None:
        """Collect output again."""
        self._is_debugging = False

    # ---- streams

    def _new_output(self) -> CaseOutput:
        return CaseOutput({name: tuple(self._sinks(name)) for name in _NAMES})

    def _sinks(self, name: StreamName) -> Iterator[Sink]:
        if self._is_collected:
            yield TextTail()
        if self._is_live:
            yield LiveLines(self._shown.get(name, _discard))

    def _redirect(self, stream: Any, name: StreamName) -> None:
        write, flush = stream.write, stream.flush

        def write_by_case(text: str) -> int:
            output = CURRENT.get()
            if not isinstance(text, str) or self._is_debugging or os.getpid() != self._process:
                written: int = write(text)
                return written
            if output is not None:
                output.write(name, text)
            elif threading.current_thread() is threading.main_thread():
                write(text)
            else:  # a thread that an agent or a library has started: its case is unknown
                write(redact(text))
            return len(text)

        def flush_by_case() -> None:
            output = CURRENT.get()
            if output is not None and os.getpid() == self._process:
                output.flush(name)
            flush()

        with contextlib.suppress(AttributeError, TypeError):  # an object that cannot be changed
            for attribute, original, replacement in (
                ("write", write, write_by_case),
                ("flush", flush, flush_by_case),
            ):
                setattr(stream, attribute, replacement)
                self._originals[id(stream), attribute] = (stream, attribute, original)
            self._shown.setdefault(name, write)


def _discard(text: str) -> None:
    del text
