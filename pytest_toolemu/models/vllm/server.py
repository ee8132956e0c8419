"""One server's process: started under a guard, asked how it is, and stopped."""

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

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.private_folders import opener_in
from pytest_toolemu.models.vllm import watchdog
from pytest_toolemu.models.vllm.gpus import GpuShare
from pytest_toolemu.models.vllm.plan import DRAIN, ServerPlan

# How long an answer may take that is no model's, and a server to end when it has answered what it had begun; seconds.
_ANSWER: Final = 5.0
_GRACE: Final = DRAIN + 10.0
# Nobody is told who serves what here. Neither does an answer change by it.
_ENVIRONMENT: Final = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


class VllmServer:
    """``vllm serve`` for one model. Its port is reserved from the beginning, so that it may be told before."""

    def __init__(self, needed: ServerPlan) -> None:
        self.needed = needed
        self.command: list[str] = []
        self.log = Path()
        self._holder = _reserve(needed)
        self.port: int = self._holder.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._group = 0
        self._started = 0.0

    @property
    def name(self) -> str:
        """For messages."""
        return f"vllm serve {self.needed.model}"

    @property
    def url(self) -> str:
        """Where it listens, without the ``/v1`` of its models."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def seconds(self) -> float:
        """How long ago it was started."""
        return time.monotonic() - self._started

    def start(self, executable: str, share: GpuShare, log: Path) -> None:
        """Begin to start it; it answers much later. OSError where not even that is possible."""
        self.command = self.needed.command(executable, self.port, share.memory)
        self.log = log
        environ = _ENVIRONMENT | os.environ
        if share.gpus:
            environ["CUDA_VISIBLE_DEVICES"] = ",".join(share.gpus)
        with open(log, "wb", opener=opener_in(log.parent)) as output:
            output.write(f"$ {shlex.join(self.command)}\n".encode())
            output.flush()
            self._process = subprocess.Popen(
                [sys.executable, "-I", watchdog.__file__, str(os.getpid()), str(_GRACE), *self.command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environ,
                start_new_session=True,
            )
        self._started = time.monotonic()
        assert self._process.stdout is not None
        with self._process.stdout as said:
            self._group = int(said.readline() or 0)

    def ended(self) -> int | None:
        """With which status it ended; None while it runs, and before it was started."""
        return self._process.poll() if self._process else None

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of one of its pages. OSError or HTTPException where it does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace")
        finally:
            connection.close()

    def health(self) -> int | None:
        """The status of its health page; None where it does not answer, as one that starts or is busy."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.get("/health")[0]
        return None

    def ask_to_stop(self) -> None:
        """It answers what it has begun and ends, or is ended; this does not wait for it."""
        self._holder.close()
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def stop(self) -> None:
        """Stop it and wait until nothing of it is left."""
        self.ask_to_stop()
        if self._process is None:
            return
        try:
            self._process.wait(_GRACE + _ANSWER)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            if self._group:  # also where the guard itself was killed
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._group, signal.SIGKILL)


def _reserve(needed: ServerPlan) -> socket.socket:
    """A socket that is bound and does not listen: nobody else is given its port, and a server may still bind it."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind(("127.0.0.1", needed.port or 0))
    except OSError as error:
        holder.close()
        raise UsageError(
            f"vllm:{needed.model}: port {needed.port}, which --toolemu-vllm-args names, cannot be had "
            f"({error.strerror}); use the server that runs there with --toolemu-vllm-url=http://127.0.0.1:{needed.port}"
            ", or leave --port out"
        ) from None
    return holder
