"""A server of the Model Context Protocol that is a command, with which messages are exchanged line by line."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

from pytest_toolemu.authoring.importers.tool_sources.mcp_listing import reply_to
from pytest_toolemu.authoring.importers.traces.json_values import load_json
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.truncation import truncated

Json = dict[str, Any]

_MAX_LINE: Final = 20_000_000
_MAX_WAITING: Final = 4
_MAX_UNSENT: Final = 100
_MAX_ERRORS: Final = 2_000
_SECONDS_OF_ENDING: Final = 0.3
_NO_METHOD: Final = -32601


def command_name(command: Sequence[str]) -> str:
    """Return the beginning of a command for messages, without values that may be secrets."""
    words = list(itertools.takewhile(lambda word: not word.startswith("--"), command))
    shown = [f"{word.partition('=')[0]}=…" if "=" in word else "…" if "://" in word else word for word in words]
    return truncated(shlex.join(shown).replace("'…'", "…") + " …" * (len(words) < len(command)), 80)


class ChildProcess:
    """A command in a process group of its own, which ends with the ``with`` block. Raise UsageError if it cannot start.

    ``errors`` is the end of what it wrote to stderr.
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self.name = command_name(command)
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"{self.name}: cannot be started: {reason}; write the command after '--', as in a shell"
            ) from None
        self._errors = b""
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process and all that it has started."""
        if hasattr(os, "killpg"):
            # Also if the process itself has ended: it may have left others behind.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()

    @property
    def ending(self) -> str:
        """How the process ended, and the end of what it wrote to stderr, for a message."""
        self._reader.join(_SECONDS_OF_ENDING)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_SECONDS_OF_ENDING)
        errors = " ".join(self._errors.decode("utf-8", "replace").split())[-600:]
        status = self.process.returncode
        ended = "is still running" if status is None else f"exited with status {status}"
        return f"{ended}; stderr: {errors or 'empty'}"

    def _read_errors(self) -> None:
        stream = self.process.stderr
        assert stream is not None
        with contextlib.suppress(OSError, ValueError), stream:
            while block := os.read(stream.fileno(), 65_536):
                self._errors = (self._errors + block)[-_MAX_ERRORS:]


class McpCommand:
    """The exchange of messages with a running server, until it is closed. Requests of the server are refused.

    Threads read and write, because a server may do neither. Their queues are bounded, because it may not stop.
    """

    def __init__(self, child: ChildProcess) -> None:
        self.name = child.name
        self._child = child
        self._lines: queue.Queue[bytes] = queue.Queue(_MAX_WAITING)
        self._messages: queue.Queue[bytes] = queue.Queue(_MAX_UNSENT)
        self._is_closed = threading.Event()
        self._requests = 0
        self._other = ""
        for work in (self._read_lines, self._write_messages):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        """End the threads, if the process ends as well."""
        self._is_closed.set()
        with contextlib.suppress(queue.Full):
            self._messages.put_nowait(b"")

    def request(self, method: str, params: Json, seconds: float) -> Json:
        """Send a request and return the reply. Raise UsageError if there is none within the time."""
        self._requests += 1
        self._send({"jsonrpc": "2.0", "id": self._requests, "method": method, "params": params})
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left)
            except queue.Empty:
                break
            if not line:
                raise UsageError(f"{self.name}: exited before it answered {method}: {self._child.ending}{self._other}")
            message = self._parsed(line)
            if (reply := reply_to(message, self._requests)) is not None:
                return reply
            self._answer(message)
        raise UsageError(
            f"{self.name}: did not answer {method} within {seconds:.1f} s ({self._child.ending}){self._other}; raise "
            "--timeout, and check that it is an MCP server"
        )

    def notify(self, method: str) -> None:
        """Send a notification."""
        self._send({"jsonrpc": "2.0", "method": method})

    def _send(self, message: Json) -> None:
        # A server that reads nothing, or has ended, is reported by the request that it does not answer.
        with contextlib.suppress(queue.Full):
            self._messages.put_nowait(json.dumps(message).encode() + b"\n")

    def _parsed(self, line: bytes) -> Any:
        try:
            return load_json(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            # Some servers greet on stdout; what they wrote helps if no answer follows.
            text = truncated(" ".join(line.decode("utf-8", "replace").split()), 80)
            self._other = self._other or f"; stdout has a line that is not JSON: {text!r}"
            return None

    def _answer(self, message: Any) -> None:
        """Answer a request of the server: this client only exists."""
        if not isinstance(message, dict) or "method" not in message or "id" not in message:
            return
        error = {"code": _NO_METHOD, "message": "this client only lists tools"}
        answer: Json = {"result": {}} if message["method"] == "ping" else {"error": error}
        self._send({"jsonrpc": "2.0", "id": message["id"], **answer})

    def _write_messages(self) -> None:
        stream = self._child.process.stdin
        assert stream is not None
        with contextlib.suppress(OSError, ValueError), stream:
            while message := self._messages.get():
                stream.write(message)
                stream.flush()

    def _read_lines(self) -> None:
        """Put each line into the queue, and an empty one at the end, or for a line that is too long."""
        stream = self._child.process.stdout
        assert stream is not None
        with contextlib.suppress(OSError, ValueError), stream:
            while (line := stream.readline(_MAX_LINE)).endswith(b"\n") and self._has_put(line):
                pass
        self._has_put(b"")

    def _has_put(self, line: bytes) -> bool:
        """Wait until the queue has room; return False if nobody reads it any more."""
        while not self._is_closed.is_set():
            with contextlib.suppress(queue.Full):
                self._lines.put(line, timeout=_SECONDS_OF_ENDING)
                return True
        return False
