"""The lane's environment and model, made once and kept; and one real server for the tests that only ask it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_toolemu.models.spec import ModelSpec
from pytest_toolemu.models.vllm.gpus import GpuShare
from pytest_toolemu.models.vllm.plan import plan_servers
from pytest_toolemu.models.vllm.server import VllmServer
from tests.live.vllm.build import build
from tests.live.vllm.dialogues import dialogues, write_project

HERE = Path(__file__).parent
# Kept between runs: 2.5 GB and some minutes.
FOLDER = Path(os.environ.get("TOOLEMU_LIVE_FOLDER", Path(__file__).parents[3] / ".live")) / "vllm"

ARGUMENTS = " ".join(
    (
        "--dtype float32",  # bfloat16 needs what not every CPU has
        "--gpu-memory-utilization 0.1",  # of the machine's memory, on a CPU
        "--max-model-len 4096 --enforce-eager",  # no compiling: it starts sooner
        "--no-enable-chunked-prefill",  # on a CPU, a request with a seed may kill the engine with it
        """--override-generation-config '{"temperature": 0}'""",  # Anthropic's SDK sends none
    )
)


@dataclass
class Lane:
    """A project with cases of which the model knows its part by heart, and pytest in it."""

    pytester: pytest.Pytester
    model: str
    before: frozenset[int]

    @property
    def folder(self) -> Path:
        return self.pytester.path / "project"

    def command(self, *args: str) -> list[str]:
        return ["-p", "no:allure_pytest", f"--rootdir={self.folder}", *args, str(self.folder)]

    def run(self, *args: str) -> pytest.RunResult:
        """A session that serves the model itself, unless the arguments say otherwise."""
        return self.pytester.runpytest_subprocess(f"--toolemu-vllm-args={ARGUMENTS}", *self.command(*args))

    def left(self) -> dict[int, str]:
        """vLLM's processes and their watchdogs that were not there when the test began, with their command lines."""
        return {pid: line for pid, line in serving().items() if pid not in self.before}


def serving() -> dict[int, str]:
    """Every process of vLLM's here. Its engines overwrite their environment with their title, so only that tells them."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_text(errors="replace").replace("\0", " ").strip()
        except OSError:
            continue
        if "VLLM::" in line or str(FOLDER / "venv") in line or "models/vllm/watchdog.py" in line:
            found[int(path.parent.name)] = line
    return found


@pytest.fixture(scope="session")
def tiny() -> Path:
    """The tiny model, made anew when the prompts, the cases or its making have changed."""
    build(FOLDER / "venv")
    told = json.dumps(dialogues(), indent=1)
    made_by = hashlib.sha256((told + (HERE / "model.py").read_text()).encode()).hexdigest()[:12]
    folder = FOLDER / f"tiny-{made_by}"
    if not (folder / "model.safetensors").exists():
        source = FOLDER / "dialogues.json"
        source.write_text(told)
        python, environ = FOLDER / "venv" / "bin" / "python", os.environ | {"HF_HUB_OFFLINE": "1"}
        subprocess.run([python, HERE / "model.py", source, folder], env=environ, check=True)
    return folder


@pytest.fixture
def lane(tiny: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Lane:
    """Sessions find the command and the model, and ask nothing of the network."""
    made = Lane(pytester, str(tiny), frozenset(serving()))
    write_project(made.folder)
    monkeypatch.setenv("PATH", f"{FOLDER / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name in ("VLLM_BASE_URL", "VLLM_API_KEY", "CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    return made


# The second: GiB for what a GPU would have in its own memory.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


@pytest.fixture(scope="session")
def server(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """A server for all tests that only ask."""
    (wanted,) = plan_servers({ModelSpec("vllm", str(tiny)): True}, ARGUMENTS)
    made = VllmServer(wanted)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        made.start(str(FOLDER / "venv" / "bin" / "vllm"), GpuShare(), tmp_path_factory.mktemp("server") / "vllm.log")
    while made.health() != 200:
        assert made.exit_status() is None, made.log.read_text()
        time.sleep(0.5)  # a real server that starts: there is nothing else to wait for
    yield made
    made.stop()
