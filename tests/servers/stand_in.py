"""A ``vllm`` command that serves the loopback server, for tests for which the real one is too slow.

It logs its events into the folder ``TOOLEMU_STAND_IN``; ``TRICK`` selects a way to misbehave.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.opinions import script
from tests.loopback.records import Answer, Request
from tests.loopback.server import LoopbackServer

FAILURE = """\
INFO 11-21 18:00:00 [api_server.py:1] starting
(EngineCore pid=7) ERROR 11-21 18:00:01 [core.py:9] EngineCore failed to start.
(EngineCore pid=7) ERROR 11-21 18:00:01 [core.py:9] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-21 18:00:01 [core.py:9]   File "core.py", line 1, in main
(EngineCore pid=7) ERROR 11-21 18:00:01 [core.py:9] ValueError: no room for the KV cache
Traceback (most recent call last):
  File "serve.py", line 1, in main
RuntimeError: Engine core initialization failed. See root cause above.
"""
DEATH = "(APIServer pid=8) ERROR 11-21 18:00:09 [core_client.py:7] Engine core proc EngineCore died unexpectedly."
# A conftest.py whose agent reports through a named pipe that it has started, and never ends.
WAITS = """
import os, threading
import pytest

@pytest.fixture
def toolemu_agent():
    def agent(task, toolbox):
        with open(os.environ["ARRIVED"], "w") as fifo:
            fifo.write("here")
        threading.Event().wait()
    return agent
"""

# A server that never answers. The shell starts it within milliseconds, so tests can give it a short time limit.
HANGS = """\
if [ "$TRICK" = hangs ]; then
    echo '"hangs"' >> "$TOOLEMU_STAND_IN/started"
    echo 'Loading weights:  40%'
    exec sleep 1000
fi
"""


def install(folder: Path) -> Path:
    """Write the command; its folder goes to the front of PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    command = folder / "vllm"
    root = Path(__file__).parents[2]
    command.write_text(f'#!/bin/sh\n{HANGS}PYTHONPATH={root} exec {sys.executable} -m tests.servers.stand_in "$@"\n')
    command.chmod(0o755)
    return folder


def main(arguments: list[str]) -> None:
    trick, folder = os.environ.get("TRICK", ""), Path(os.environ["TOOLEMU_STAND_IN"])
    _say(folder / "started", {"arguments": arguments, "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")})
    if trick == "fails":
        print(FAILURE, end="")
        sys.exit(1)
    # The engine process does not end by itself when the server is killed.
    engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    _say(folder / "processes", [os.getpid(), engine.pid])
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    models = [_after("--served-model-name", arguments)]
    if "--lora-modules" in arguments:
        models.append(_after("--lora-modules", arguments).partition("=")[0])
    counting_script = CountingScript(trick)
    pages = {"/health": lambda: (200, ""), "/version": lambda: (200, '{"version": "0.0"}')}
    with LoopbackServer(counting_script, models=models, port=int(_after("--port", arguments)), pages=pages):
        ended.wait()
    _say(folder / "asked-to-end", models[0])
    engine.kill()


class CountingScript:
    """A script that counts its requests, and can end the process at the third."""

    def __init__(self, trick: str) -> None:
        self._trick = trick
        self._script: Callable[[Request], Any] = script()
        self._count = 0

    def __call__(self, request: Request) -> Answer:
        self._count += 1
        if self._trick == "dies" and self._count == 3:
            print(DEATH, flush=True)
            os._exit(0)
        answer: Answer = self._script(request)
        return answer


def _after(name: str, arguments: list[str]) -> str:
    return arguments[arguments.index(name) + 1]


def _say(path: Path, what: Any) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
