"""What a running case prints and logs: collected for the case's own item, bounded, and without secrets."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Final, Literal, Protocol

from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.formats.visible_text import visible

StreamName = Literal["stdout", "stderr"]

# The last lines of a log and the last characters of a stream are kept: a library at DEBUG writes thousands of lines.
_MAX_LINES: Final = 1000
MAX_CHARACTERS: Final = 100_000
# A secret, in any form, is shorter than this.
_LONGEST_SECRET: Final = 10_000
# A line that is shown at once, with -s, is held back until it ends or has this length.
_LONGEST_LINE: Final = 10_000
DROPPED: Final = f"[the beginning was dropped; the last {MAX_CHARACTERS:,} characters follow]\n"


class Sink(Protocol):
    """Takes the text that a case writes to a stream, from any thread."""

    def write(self, text: str) -> None:
        """Take the next part of the text."""

    def flush(self) -> None:
        """Show what is held back."""

    def take(self) -> str:
        """Return what was collected since the last call, in a form that is safe to show."""


class TextTail:
    """Keeps the end of a text.

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
            return visible(text)
        # The kept text may begin within a secret, which cannot be recognized: its rest is dropped with what follows.
        return DROPPED + visible(text)[_LONGEST_SECRET:][-MAX_CHARACTERS:]

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
                end = joined.rfind("\n") + 1 or len(joined)
                self._parts, self._size = [joined[end:]], len(joined) - end
                self._show(redact(joined[:end]))

    def flush(self) -> None:
        """Show the beginning of the current line, such as a prompt."""
        with self._lock:
            text = "".join(self._parts)
            self._parts, self._size = [], 0
            if text:
                self._show(redact(text))

    def take(self) -> str:
        """Show the rest, and return nothing, as everything has been shown."""
        self.flush()
        return ""


class CaseOutput:
    """What one case has printed and logged since it was last reported."""

    def __init__(self, streams: Mapping[StreamName, tuple[Sink, ...]]) -> None:
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
