"""A command in a pseudo-terminal with a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.processes import start_with


def set_width(descriptor: int, width: int) -> None:
    """Set the columns of a pseudo-terminal; 0 means unknown."""
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))


class Terminal:
    """A running command whose output is read up to expected texts."""

    def __init__(self, command: Sequence[str], width: int, *, cwd: Path, env: Mapping[str, str]) -> None:
        self._inner, outer = pty.openpty()
        self.resize(width)
        self.process = start_with(command, outer, outer, stdin=outer, cwd=cwd, env=env)
        os.close(outer)
        self._text = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.process.kill()
        self.process.wait()
        os.close(self._inner)

    def resize(self, width: int) -> None:
        """Change the width, as a user does by resizing the window."""
        set_width(self._inner, width)

    def until(self, text: str) -> str:
        """Wait for the text, and return the output up to its end."""
        while text not in self._text:
            self._read()
        before, self._text = self._text.split(text, 1)
        return before + text

    def remainder(self) -> str:
        """Wait for the end of the command, and return the remaining output."""
        try:
            while True:
                self._read()
        except EOFError:
            text, self._text = self._text, ""
            return text

    def _read(self) -> None:
        try:
            block = os.read(self._inner, 65536)
        except OSError:  # Linux reports a closed other side by an error
            block = b""
        if not block:
            raise EOFError(self._text)
        self._text += block.decode(errors="replace")
