"""What a running case prints and logs: collected for the case's own item, bounded, and without secrets."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Literal

import pytest

from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.formats.text import in_log, visible

StreamName = Literal["stdout", "stderr"]

# The last lines of a log and the last characters of a stream are kept: a library at DEBUG writes thousands of lines.
_MAX_LINES: Final = 1000
MAX_CHARACTERS: Final = 100_000
# A secret, in any form, is shorter than this.
_LONGEST_SECRET: Final = 10_000
# A line that is shown at once, with -s, is held back until it ends or has this length.
_LONGEST_LINE: Final = 10_000
DROPPED: Final = f"[the beginning was dropped; the last {MAX_CHARACTERS:,} characters follow]\n"


class TextTail:
    """Keeps the end of the text that a case writes to a stream, from any thread.

    Secrets are removed from the whole of what is kept, because a part may end in the middle of a secret.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self._is_cut = False
        self._lock = threading.Lock()

    def write(self, text: str) -> None:
        """Add a part; drop the beginning if too much has been collected."""
        with self._lock:
            self._parts.append(text)
            self._size += len(text)
            if self._size > 2 * MAX_CHARACTERS:
                self._cut()

    def flush(self) -> None:
        """Do nothing: the text is shown when the case has ended."""

    def take(self) -> str:
        """Return the end of the text and start anew."""
        with self._lock:
            self._cut()
            text, is_cut = "".join(self._parts), self._is_cut
            self._parts, self._size, self._is_cut = [], 0, False
        if not is_cut:
            return in_log(visible(text))
        # The kept text may begin within a secret, which cannot be recognized: its rest is dropped with what follows.
        return DROPPED + in_log(visible(text)[_LONGEST_SECRET:][-MAX_CHARACTERS:])

    def _cut(self) -> None:
        if self._size <= MAX_CHARACTERS:
            return
        text = "".join(self._parts)[-MAX_CHARACTERS - _LONGEST_SECRET :]
        self._is_cut = self._is_cut or len(text) < self._size
        self._parts, self._size = [text], len(text)


class LiveLines:
    """Shows whole lines without secrets as soon as they end, so that cases do not write into each other's lines."""

    def __init__(self, show: Callable[[str], object]) -> None:
        self._show = show
        self._parts: list[str] = []
        self._size = 0
        self._lock = threading.RLock()  # reentrant: a signal handler may print while a line is shown

    def write(self, text: str) -> None:
        """Show the lines that end in this part."""
        with self._lock:
            self._parts.append(text)
            self._size += len(text)
            if "\n" in text or self._size > _LONGEST_LINE:
                joined = "".join(self._parts)
                end = joined.rfind("\n") + 1 or len(joined.rstrip(":#"))  # what may begin a command of a CI stays whole
                self._parts, self._size = [joined[end:]], len(joined) - end
                self._show(in_log(redact(joined[:end])))

    def flush(self) -> None:
        """Show the beginning of the current line, such as a prompt."""
        with self._lock:
            self._show_part("".join(self._parts), keep=":#")

    def take(self) -> str:
        """Show the rest, and return nothing, as everything has been shown."""
        with self._lock:
            self._show_part("".join(self._parts))
        return ""

    def _show_part(self, text: str, keep: str = "\0") -> None:
        """Show text up to a last part of these characters, because a command of a CI may begin there."""
        shown = text.rstrip(keep)
        self._parts, self._size = [text[len(shown) :]], len(text) - len(shown)
        if shown:
            self._show(in_log(redact(shown)))


class CaseOutput:
    """What one case has printed and logged since it was last reported."""

    def __init__(self, streams: Mapping[StreamName, Sequence[TextTail | LiveLines]]) -> None:
        self._streams = streams
        self.log: deque[str] = deque(maxlen=_MAX_LINES)

    def write(self, stream: StreamName, text: str) -> None:
        """Take what the case writes to a stream."""
        for sink in self._streams[stream]:
            sink.write(text)

    def flush(self, stream: StreamName) -> None:
        """Show what is held back, if the stream is shown at once."""
        for sink in self._streams[stream]:
            sink.flush()

    def take_sections(self) -> dict[str, str]:
        """Return what was collected since the last call, by the name that pytest gives such a section."""
        sections: dict[str, str] = {
            name: "".join(sink.take() for sink in sinks) for name, sinks in self._streams.items()
        }
        sections["log"] = "\n".join(self.log)
        self.log.clear()
        return {name: text for name, text in sections.items() if text}


CURRENT: Final[ContextVar[CaseOutput | None]] = ContextVar("toolemu_case_output", default=None)
"""The output of the case that this code runs in: set for its task, and for the tasks and threads that inherit it."""


def is_in_case() -> bool:
    """Return whether this code runs in a case."""
    return CURRENT.get() is not None


class CaseLogs(logging.Handler):
    """Collects log records of cases. A handler of the root logger while cases run."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        # Without pytest's logging plugin (``-p no:logging``) the formats are not declared, and no log is shown.
        plugin = config.pluginmanager.getplugin("logging-plugin")
        self._is_wanted = plugin is not None
        if plugin is not None:
            self.setFormatter(logging.Formatter(config.getini("log_format"), config.getini("log_date_format")))
            # pytest attaches its own handlers, which assign records to the current item, to the root logger in each
            # phase of an item, when cases may be running already: they ignore the records of cases.
            for handler in vars(plugin).values():
                if isinstance(handler, logging.Handler) and hasattr(handler, "records"):
                    handler.addFilter(lambda _: not is_in_case())  # the record was created in this context
        # First, because a thread that goes through the handlers skips one if pytest removes another before it.
        logging.getLogger().handlers.insert(0, self)

    def emit(self, record: logging.LogRecord) -> None:
        """Collect a record that is logged in a case."""
        output = CURRENT.get()
        if self._is_wanted and output is not None:
            output.log.append(in_log(visible(self.format(record))))

    def close(self) -> None:
        """Collect no more records."""
        logging.getLogger().removeHandler(self)
        super().close()


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
        self._is_debugging = False
        self.redirect()

    @contextlib.contextmanager
    def collect(self, item: str) -> Iterator[CaseOutput]:
        """Collect what is printed and logged inside this context: by this task, and the tasks and threads it starts."""
        self.redirect()
        if (output := self._outputs.get(item)) is None:
            sinks: dict[StreamName, list[TextTail | LiveLines]] = {}
            for name in _NAMES:
                live = LiveLines(self._shown.get(name, str))  # ``str`` shows nothing
                sinks[name] = [*([TextTail()] * self._is_collected), *([live] * self._is_live)]
            output = self._outputs[item] = CaseOutput(sinks)
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
        """Redirect the streams by which pytest, or a fixture such as ``capsys``, has replaced those of the process."""
        self.redirect()

    pytest_runtest_call = pytest_runtest_logreport = pytest_runtest_setup

    def pytest_enter_pdb(self) -> None:
        """Leave all output to the debugger, which an agent may start with ``breakpoint()``."""
        self._is_debugging = True

    def pytest_leave_pdb(self) -> None:
        """Collect output again."""
        self._is_debugging = False

    # ---- streams

    def _redirect(self, stream: Any, name: StreamName) -> None:
        write, flush = stream.write, stream.flush

        def write_by_case(text: str) -> int:
            output = CURRENT.get()
            if not isinstance(text, str) or self._is_debugging:
                written: int = write(text)
                return written
            if output is not None:
                output.write(name, text)
            elif threading.current_thread() is threading.main_thread():
                write(text)
            else:  # a thread that an agent or a library has started: its case is unknown
                write(in_log(redact(text)))
            return len(text)

        def flush_by_case() -> None:
            output = CURRENT.get()
            if output is not None:
                output.flush(name)
            flush()

        with contextlib.suppress(AttributeError, TypeError):  # an object that cannot be changed
            for attribute, original, replacement in (("write", write, write_by_case), ("flush", flush, flush_by_case)):
                setattr(stream, attribute, replacement)
                self._originals[id(stream), attribute] = (stream, attribute, original)
            self._shown.setdefault(name, write)
