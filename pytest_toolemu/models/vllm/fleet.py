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
from typing import Any, Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.spec import ServedEndpoint
from pytest_toolemu.models.vllm import gpus
from pytest_toolemu.models.vllm.log_errors import causes, last_line
from pytest_toolemu.models.vllm.metrics_log import MetricsLog
from pytest_toolemu.models.vllm.plan import ServerPlan
from pytest_toolemu.models.vllm.server import VllmServer

# In seconds: how often servers are looked at, and measured, and how long one may live on whose engine is dead.
_LOOK: Final = 0.5
_SAMPLE: Final = 30.0
_DYING: Final = 10.0

OnWait = Callable[[VllmServer, str], object]
"""Told again and again of a server that is starting, with the last line of its log."""

OnDeath = Callable[[VllmServer, str], object]
"""Told of a server that has died, and why; on a thread of its own."""


class ServerFleet:
    """Ports are known from the beginning, so that other processes can be told; ``start`` starts the servers."""

    def __init__(self, needed: Sequence[ServerPlan]) -> None:
        self._all_gpus = gpus.visible() if len(needed) > 1 else ()
        self._shares = gpus.split({each.model: each.gpus for each in needed}, self._all_gpus)
        if len(needed) > 1 and any(each.port for each in needed):
            told = "--port is for one server, and this session needs several; leave it out"
            raise UsageError(f"--toolemu-vllm-args: {told}")
        self.servers = [VllmServer(each) for each in needed]
        self._usage: MetricsLog | None = None
        self._over = threading.Event()
        self._watch: threading.Thread | None = None
        self._dead: set[str] = set()
        self._versions: dict[str, str | None] = {}

    @property
    def places(self) -> dict[str, ServedEndpoint]:
        """Where each model and adapter is served, by its name."""
        return {name: server.needed.place(name, server.port) for server in self.servers for name in server.needed.names}

    def start(self, folder: Path, patience: float, on_wait: OnWait) -> None:
        """Start them all, with their logs in the folder, and wait until each answers. UsageError where one does not.

        ``patience`` is in seconds, for each. Those that share a GPU start one after the other, as vLLM measures what is
        free.
        """
        executable = _executable(self.servers[0].needed.model)
        self._usage = MetricsLog(folder)
        together = not any(share.memory for share in self._shares.values())
        for number, server in enumerate(self.servers):
            log = folder / ("vllm.log" if len(self.servers) == 1 else f"vllm-{number}.log")
            server.start(executable, self._shares[server.needed.model], log)
            if not together:
                _wait([server], patience, on_wait)
        _wait(self.servers, patience, on_wait)
        self._usage.sample(self.servers)
        self._versions = {server.needed.model: _version(server) for server in self.servers}

    def watch(self, on_death: OnDeath) -> None:
        """From now on look after them, and take their figures now and then."""
        self._watch = threading.Thread(target=self._keep_watch, args=(on_death,), name="toolemu-servers", daemon=True)
        self._watch.start()

    def finish(self) -> None:
        """Nobody asks any more: the last figures, and no more watch."""
        self._over.set()
        if self._watch is not None:
            self._watch.join()
        if self._usage is not None:
            self._usage.sample([server for server in self.servers if server.ended() is None])

    def stop(self) -> None:
        """Stop them all, and wait until nothing of them is left."""
        self._over.set()
        for server in self.servers:
            server.ask_to_stop()
        for server in self.servers:
            server.stop()

    def as_json(self) -> list[dict[str, Any]]:
        """For the session's manifest: of each server its model, command, version, log, and figures so far."""
        return [
            {
                "model": server.needed.model,
                "command": server.command,
                "version": self._versions.get(server.needed.model),
                "log": server.log.name,
                "figures": self._usage.of(server) if self._usage else {},
            }
            for server in self.servers
            if server.command
        ]

    def _keep_watch(self, on_death: OnDeath) -> None:
        sampled, ill = time.monotonic(), dict[str, float]()
        while not self._over.wait(_LOOK):
            for server in self.servers:
                if server.needed.model not in self._dead and (reason := _death(server, ill)):
                    self._dead.add(server.needed.model)
                    on_death(server, reason)
            if time.monotonic() - sampled >= _SAMPLE and self._usage is not None:
                sampled = time.monotonic()
                self._usage.sample(self.servers)


def _death(server: VllmServer, ill: dict[str, float]) -> str:
    """Why a server will answer no more; empty while it may. A dead engine's server is given time to end by itself."""
    code = server.ended()
    if code is not None:
        return trouble(server, f"has ended with {code}")
    if server.health() != 503:
        ill.pop(server.name, None)
        return ""
    since = ill.setdefault(server.name, time.monotonic())
    return trouble(server, "has a dead engine (503)") if time.monotonic() - since > _DYING else ""


def _wait(servers: Sequence[VllmServer], patience: float, on_wait: OnWait) -> None:
    waiting = list(servers)
    while waiting:
        for server in list(waiting):
            code = server.ended()
            if code is not None:
                raise UsageError(trouble(server, f"ended with {code} after {server.seconds:.0f} s, before it was up"))
            if server.health() == 200:
                waiting.remove(server)
            elif server.seconds > patience:
                told = f"does not answer after {server.seconds:.0f} s; give it more with --toolemu-vllm-timeout"
                raise UsageError(trouble(server, told))
        if waiting:
            on_wait(waiting[0], last_line(waiting[0].log))
            time.sleep(_LOOK / 2)


def trouble(server: VllmServer, what: str) -> str:
    """A sentence about a server, the lines of its log that tell why, and where the rest is."""
    lines = "".join(f"\n  {line}" for line in causes(server.log))
    said = f"; its log says:{lines}" if lines else ""
    return f"{server.name} {what}{said}\n  (all of it: {server.log})"


def _executable(model: str) -> str:
    found = shutil.which("vllm") or shutil.which("vllm", path=str(Path(sys.executable).parent))
    if found is None:
        raise UsageError(
            f"vllm:{model} needs the vllm command: pip install 'pytest-toolemu[vllm]' (Linux with a GPU), or name a "
            f"server that runs: vllm:{model}@http://host:8000/v1, or --toolemu-vllm-url=http://host:8000/v1"
        )
    return found


def _version(server: VllmServer) -> str | None:
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return str(json.loads(server.get("/version")[1])["version"])
    return None
