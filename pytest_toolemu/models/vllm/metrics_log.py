"""How busy the servers and GPUs are, asked now and then: a line of JSON each time."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.formats.private_folders import opener_in
from pytest_toolemu.models.vllm import gpus
from pytest_toolemu.models.vllm.metrics import read_metrics, summary
from pytest_toolemu.models.vllm.server import VllmServer

FILE: Final = "vllm-metrics.jsonl"
"""In the session's folder. Each line has ``time`` (seconds since the epoch), ``server``, its figures, and the GPUs'."""


class MetricsLog:
    """Writes the file, and keeps what the summary is made of."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._seen: dict[str, list[dict[str, Any]]] = {}

    def sample(self, servers: Sequence[VllmServer]) -> None:
        """A line for each server that answers. One that cannot be written costs no more than itself."""
        cards = gpus.figures()
        for server in servers:
            with contextlib.suppress(OSError, http.client.HTTPException):
                figures = read_metrics(server.get("/metrics")[1])
                line = {"time": round(time.time(), 3), "server": server.needed.model, **figures, "gpus": cards}
                self._seen.setdefault(server.needed.model, []).append(line)
                with open(self._path, "a", encoding="utf-8", opener=opener_in(self._path.parent)) as file:
                    file.write(json.dumps(line) + "\n")

    def of(self, server: VllmServer) -> dict[str, Any]:
        """A server's figures over the session; empty where it was never asked."""
        return summary(self._seen.get(server.needed.model, []))
