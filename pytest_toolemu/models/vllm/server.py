"""The process of one server: started under a watchdog, checked, and stopped."""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from pytest_toolemu.formats.files.private_folders import opener_in
from pytest_toolemu.models.vllm import watchdog
from pytest_toolemu.models.vllm.gpus import GpuShare
from pytest_toolemu.models.vllm.plan import DRAIN_SECONDS, ServerPlan

# Seconds: for a response of a page such as /health, and for a server to exit, including its requests in progress.
_PAGE_SECONDS: Final = 5.0
_GRACE_SECONDS: Final = DRAIN_SECONDS + 10.0
# No usage statistics are sent. Replies do not depend on it.
_ENVIRONMENT: Final = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


class VllmServer:
    """``vllm serve`` for one model. Its port is reserved at once, so other processes can learn it before the start."""

    def __init__(self, plan: ServerPlan) -> None:
        self.plan = plan
        self.command: list[str] = []
        self.log = Path()
        self._reserved = _reserve_port()
        self.port: int = self._reserved.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._group = 0
        self._started = 0.0

    @property
    def name(self) -> str:
        """Name of the server in messages."""
        return f"vllm serve {self.plan.model}"

    @property
    def url(self) -> str:
        """Base URL of the server, without the ``/v1`` of its models."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def start(self, executable: str, share: GpuShare, log: Path) -> None:
        """Start the process, which answers only much later. OSError if the process cannot be started."""
        self.command = self.plan.command(executable, self.port, share.memory)
        self.log = log
        environ = _ENVIRONMENT | os.environ
        if share.gpus:
            environ["CUDA_VISIBLE_DEVICES"] = ",".join(share.gpus)
        with open(log, "wb", opener=opener_in(log.parent)) as output:
            output.write(f"$ {shlex.join(self.command)}\n".encode())
            output.flush()
            self._process = subprocess.Popen(
                [sys.executable, "-I", watchdog.__file__, str(os.getpid()), str(_GRACE_SECONDS), *self.command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environ,
                start_new_session=True,
            )
        self._started = time.monotonic()
        assert self._process.stdout is not None
        with self._process.stdout as output_of_watchdog:
            self._group = int(output_of_watchdog.readline() or 0)

    def exit_status(self) -> int | None:
        """Return the exit status; None while it runs, and before the start."""
        return self._process.poll() if self._process else None

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and text of a page. OSError or HTTPException if it does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PAGE_SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace")
        finally:
            connection.close()

    def health(self) -> int | None:
        """Return the status of its health page; None if it does not answer, because it is starting or busy."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.get("/health")[0]
        return None

    def request_stop(self) -> None:
        """Make the watchdog stop the server after its requests in progress, without waiting for that."""
        self._reserved.close()
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def stop(self) -> None:
        """Stop the server and wait until all its processes have ended."""
        self.request_stop()
        if self._process is None:
            return
        try:
            self._process.wait(_GRACE_SECONDS + _PAGE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            if self._group:  # also if the watchdog itself was killed
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._group, signal.SIGKILL)


def _reserve_port() -> socket.socket:
    """Bind a free port without listening: no other process is given the port, and the server can still bind it."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved
