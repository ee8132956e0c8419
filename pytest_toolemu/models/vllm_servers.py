"""The vLLM servers of a session: started under a watchdog, checked, explained if they fail, and stopped."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import opener_in
from pytest_toolemu.formats.text import truncated, visible
from pytest_toolemu.models import vllm_watchdog
from pytest_toolemu.models.endpoint import ServedEndpoint
from pytest_toolemu.models.vllm_plan import DRAIN_SECONDS, GpuShare, ServerPlan, split_gpus, visible_gpus

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
        # Bound without listening: no other process is given the port, and the server can still bind it.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
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
                [sys.executable, "-I", vllm_watchdog.__file__, str(os.getpid()), str(_GRACE_SECONDS), *self.command],
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


_CAUSES: Final = 3
_LAST: Final = 5
_LONGEST: Final = 300
# The prefix that loggers and processes add to a line: ``(EngineCore pid=7) ERROR 11-21 18:00:00 [core.py:936] ``.
_PREFIX: Final = re.compile(
    r"^(?:\([^()]*pid=\d+\) )?(?:(?P<level>[A-Z]+) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? )?(?:\[[^\]]*:\d+\] )?"
)
_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Killed|Interrupt)\b.*: |^\S+: error: |^Fatal ")
_FRAME: Final = re.compile(r"\s|Traceback \(|File \"|During handling|The above exception|^$|\^+$")


def causes(path: Path) -> list[str]:
    """Return the first lines of a log that report an error, without tracebacks and prefixes, or else the last lines."""
    errors: list[str] = []
    others: list[str] = []
    for line in _text(path).splitlines():
        prefix = _PREFIX.match(line)
        assert prefix is not None
        text = line[prefix.end() :].rstrip()
        is_error = prefix["level"] in ("ERROR", "CRITICAL") or _RAISED.match(text) is not None
        is_error = is_error and not _FRAME.match(text) and text not in errors
        # Pydantic puts the actual problem on the line after its heading.
        is_detail = bool(errors) and "validation error" in errors[-1]
        (errors if is_error or is_detail else others).append(text)
    return [_short(text) for text in errors[:_CAUSES] or [text for text in others if text.strip()][-_LAST:]]


def last_line(path: Path) -> str:
    """Return the last line of a log that is not empty; of a progress bar, its latest state."""
    lines = (line for line in reversed(_text(path).replace("\r", "\n").splitlines()) if line.strip())
    return _short(_PREFIX.sub("", next(lines, "")))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _short(line: str) -> str:
    return truncated(" ".join(visible(line).split()), _LONGEST)


# Seconds between two checks of a server.
_POLL_SECONDS: Final = 0.5

OnWait = Callable[[VllmServer, str], object]
"""Called repeatedly with a server that is starting and the last line of its log."""

OnDeath = Callable[[VllmServer, str], object]
"""Called with a server that has died and the reason, on a thread of its own."""


class ServerFleet:
    """The servers of a session. Their ports are known at once, so other processes can learn them before ``start``."""

    def __init__(self, plans: Sequence[ServerPlan]) -> None:
        available = visible_gpus() if len(plans) > 1 else ()
        self._shares = split_gpus({plan.model: plan.gpus for plan in plans}, available)
        self.servers = [VllmServer(plan) for plan in plans]
        self._is_stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self.versions: dict[str, str | None] = {}
        """The version of vLLM that each server runs, by its model; None if it is unknown."""

    @property
    def endpoints(self) -> dict[str, ServedEndpoint]:
        """Where each model and adapter is served, by name."""
        return {name: server.plan.endpoint(name, server.port) for server in self.servers for name in server.plan.names}

    def start(self, folder: Path, patience: float, on_wait: OnWait) -> None:
        """Start all servers, with their logs in the folder, and wait until each answers. UsageError if one fails.

        ``patience`` is in seconds and applies to each server. Servers that share a GPU start one after the other,
        because vLLM measures the free memory while it starts.
        """
        executable = shutil.which("vllm") or shutil.which("vllm", path=str(Path(sys.executable).parent))
        if executable is None:
            model = self.servers[0].plan.model
            raise UsageError(
                f"vllm:{model} needs the vllm command: pip install 'pytest-toolemu[vllm]' (Linux with a GPU), or name "
                f"a running server: vllm:{model}@http://host:8000/v1, or --toolemu-vllm-url=http://host:8000/v1"
            )
        one_by_one = any(share.memory for share in self._shares.values())
        for number, server in enumerate(self.servers):
            log = folder / ("vllm.log" if len(self.servers) == 1 else f"vllm-{number}.log")
            server.start(executable, self._shares[server.plan.model], log)
            if one_by_one:
                _wait([server], patience, on_wait)
        _wait(self.servers, patience, on_wait)
        self.versions = {server.plan.model: _version(server) for server in self.servers}

    def watch(self, on_death: OnDeath) -> None:
        """Check the servers on a thread of its own until ``stop_watching``."""
        self._watcher = threading.Thread(target=self._watch, args=(on_death,), name="toolemu-servers", daemon=True)
        self._watcher.start()

    def stop_watching(self) -> None:
        """Stop checking the servers: no more requests will be sent, so their end is not a failure."""
        self._is_stopping.set()
        if self._watcher is not None:
            self._watcher.join()

    def stop(self) -> None:
        """Stop all servers and wait until all their processes have ended."""
        self._is_stopping.set()
        for server in self.servers:
            server.request_stop()
        for server in self.servers:
            server.stop()

    def _watch(self, on_death: OnDeath) -> None:
        alive = list(self.servers)
        while not self._is_stopping.wait(_POLL_SECONDS):
            for server in list(alive):
                # A server whose engine has died ends by itself within seconds.
                if (status := server.exit_status()) is not None:
                    alive.remove(server)
                    on_death(server, describe_failure(server, f"has exited with {status}"))


def _wait(servers: Sequence[VllmServer], patience: float, on_wait: OnWait) -> None:
    starting = list(servers)
    while starting:
        for server in list(starting):
            status = server.exit_status()
            if status is not None:
                problem = f"exited with {status} after {server.seconds:.0f} s, before it was ready"
                raise UsageError(describe_failure(server, problem))
            if server.health() == 200:
                starting.remove(server)
            elif server.seconds > patience:
                problem = f"does not answer after {server.seconds:.0f} s; raise toolemu_vllm_timeout"
                raise UsageError(describe_failure(server, problem))
        if starting:
            on_wait(starting[0], last_line(starting[0].log))
            time.sleep(_POLL_SECONDS / 2)


def describe_failure(server: VllmServer, problem: str) -> str:
    """State a server's problem with the lines of its log that contain the cause, and the path of the log."""
    lines = "".join(f"\n  {line}" for line in causes(server.log))
    excerpt = f"; its log says:{lines}" if lines else ""
    return f"{server.name} {problem}{excerpt}\n  (complete log: {server.log})"


def _version(server: VllmServer) -> str | None:
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return str(json.loads(server.get("/version")[1])["version"])
    return None
