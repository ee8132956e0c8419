"""All servers of a session: started together, watched while cases run, and stopped."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.spec import ServedEndpoint
from pytest_toolemu.models.vllm import gpus
from pytest_toolemu.models.vllm.log_errors import causes, last_line
from pytest_toolemu.models.vllm.plan import ServerPlan
from pytest_toolemu.models.vllm.server import VllmServer

# Seconds: between two checks of a server, and how long a server that reports a dead engine may continue.
_POLL_SECONDS: Final = 0.5
_DYING_SECONDS: Final = 10.0

OnWait = Callable[[VllmServer, str], object]
"""Called repeatedly with a server that is starting and the last line of its log."""

OnDeath = Callable[[VllmServer, str], object]
"""Called with a server that has died and the reason, on a thread of its own."""


class ServerFleet:
    """The servers of a session. Their ports are known at once, so other processes can learn them before ``start``."""

    def __init__(self, plans: Sequence[ServerPlan]) -> None:
        available = gpus.visible() if len(plans) > 1 else ()
        self._shares = gpus.split({plan.model: plan.gpus for plan in plans}, available)
        self.servers = [VllmServer(plan) for plan in plans]
        self._is_stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self._dead: set[str] = set()
        self._versions: dict[str, str | None] = {}

    @property
    def endpoints(self) -> dict[str, ServedEndpoint]:
        """Where each model and adapter is served, by name."""
        return {name: server.plan.endpoint(name, server.port) for server in self.servers for name in server.plan.names}

    def start(self, folder: Path, patience: float, on_wait: OnWait) -> None:
        """Start all servers, with their logs in the folder, and wait until each answers. UsageError if one fails.

        ``patience`` is in seconds and applies to each server. Servers that share a GPU start one after the other,
        because vLLM measures the free memory while it starts.
        """
        executable = _executable(self.servers[0].plan.model)
        one_by_one = any(share.memory for share in self._shares.values())
        for number, server in enumerate(self.servers):
            log = folder / ("vllm.log" if len(self.servers) == 1 else f"vllm-{number}.log")
            server.start(executable, self._shares[server.plan.model], log)
            if one_by_one:
                _wait([server], patience, on_wait)
        _wait(self.servers, patience, on_wait)
        self._versions = {server.plan.model: _version(server) for server in self.servers}

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

    def version_of(self, server: VllmServer) -> str | None:
        """Return the version of vLLM that a server runs; None if the server never answered."""
        return self._versions.get(server.plan.model)

    def _watch(self, on_death: OnDeath) -> None:
        dying_since: dict[str, float] = {}
        while not self._is_stopping.wait(_POLL_SECONDS):
            for server in self.servers:
                if server.plan.model not in self._dead and (reason := _death(server, dying_since)):
                    self._dead.add(server.plan.model)
                    on_death(server, reason)


def _death(server: VllmServer, dying_since: dict[str, float]) -> str:
    """Return why a server will not answer any more; empty if it may.

    A server whose engine is dead gets some time to end by itself, because its log then has the cause.
    """
    status = server.exit_status()
    if status is not None:
        return describe_failure(server, f"has exited with {status}")
    if server.health() != 503:
        dying_since.pop(server.name, None)
        return ""
    since = dying_since.setdefault(server.name, time.monotonic())
    is_dead = time.monotonic() - since > _DYING_SECONDS
    return describe_failure(server, "has a dead engine (503)") if is_dead else ""


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
                problem = f"does not answer after {server.seconds:.0f} s; raise --toolemu-vllm-timeout"
                raise UsageError(describe_failure(server, problem))
        if starting:
            on_wait(starting[0], last_line(starting[0].log))
            time.sleep(_POLL_SECONDS / 2)


def describe_failure(server: VllmServer, problem: str) -> str:
    """State a server's problem with the lines of its log that contain the cause, and the path of the log."""
    lines = "".join(f"\n  {line}" for line in causes(server.log))
    excerpt = f"; its log says:{lines}" if lines else ""
    return f"{server.name} {problem}{excerpt}\n  (complete log: {server.log})"


def _executable(model: str) -> str:
    path = shutil.which("vllm") or shutil.which("vllm", path=str(Path(sys.executable).parent))
    if path is None:
        raise UsageError(
            f"vllm:{model} needs the vllm command: pip install 'pytest-toolemu[vllm]' (Linux with a GPU), or name a "
            f"running server: vllm:{model}@http://host:8000/v1, or --toolemu-vllm-url=http://host:8000/v1"
        )
    return path


def _version(server: VllmServer) -> str | None:
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return str(json.loads(server.get("/version")[1])["version"])
    return None
