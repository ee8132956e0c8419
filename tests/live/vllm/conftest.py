"""The environment and the model of these tests, built once and kept, and one server for tests that only send requests."""

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

from pytest_toolemu.models.endpoint import ModelSpec
from pytest_toolemu.models.vllm_plan import GpuShare, plan_servers
from pytest_toolemu.models.vllm_servers import VllmServer
from tests.live.vllm.build import build
from tests.live.vllm.dialogues import dialogues, write_project

HERE = Path(__file__).parent
# Kept between runs: 2.5 GB and some minutes.
FOLDER = Path(os.environ.get("TOOLEMU_LIVE_FOLDER", Path(__file__).parents[3] / ".live")) / "vllm"

ARGUMENTS = " ".join(
    (
        "--dtype float32",  # not every CPU supports bfloat16
        "--gpu-memory-utilization 0.1",  # a share of the machine's memory on a CPU
        "--max-model-len 4096 --enforce-eager",  # without compilation, the server starts sooner
        "--no-enable-chunked-prefill",  # on a CPU, a request with a seed can crash the engine otherwise
        """--override-generation-config '{"temperature": 0}'""",  # Anthropic's SDK sends none
    )
)


@dataclass
class Lane:
    """A project whose conversations the model has memorized, and pytest in it."""

    pytester: pytest.Pytester
    model: str
    before: frozenset[int]

    @property
    def folder(self) -> Path:
        return self.pytester.path / "project"

    def command(self, *args: str) -> list[str]:
        return ["-p", "no:allure_pytest", f"--rootdir={self.folder}", *args, str(self.folder)]

    def run(self, *args: str) -> pytest.RunResult:
        """Run a session; it serves the model itself unless the arguments name a server."""
        return self.pytester.runpytest_subprocess(f"-otoolemu_vllm_args={ARGUMENTS}", *self.command(*args))

    def processes(self) -> dict[int, str]:
        """Return the command lines, by pid, of the vLLM processes and watchdogs started since the test began."""
        return {pid: line for pid, line in serving().items() if pid not in self.before}


def serving() -> dict[int, str]:
    """Return the command lines of all vLLM processes by pid. Engines set their title, which identifies them."""
    processes = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_text(errors="replace").replace("\0", " ").strip()
        except OSError:
            continue
        if "VLLM::" in line or str(FOLDER / "venv") in line or "models/vllm_watchdog.py" in line:
            processes[int(path.parent.name)] = line
    return processes


@pytest.fixture(scope="session")
def tiny() -> Path:
    """Build the tiny model; build it again if the prompts, the cases, or its code have changed."""
    build(FOLDER / "venv")
    conversations = json.dumps(dialogues(), indent=1)
    digest = hashlib.sha256((conversations + (HERE / "model.py").read_text()).encode()).hexdigest()[:12]
    folder = FOLDER / f"tiny-{digest}"
    if not (folder / "model.safetensors").exists():
        source = FOLDER / "dialogues.json"
        source.write_text(conversations)
        python, environ = FOLDER / "venv" / "bin" / "python", os.environ | {"HF_HUB_OFFLINE": "1"}
        subprocess.run([python, HERE / "model.py", source, folder], env=environ, check=True)
    return folder


@pytest.fixture
def lane(tiny: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Lane:
    """Create a project whose sessions find the command and the model, and need no network."""
    project = Lane(pytester, str(tiny), frozenset(serving()))
    write_project(project.folder)
    monkeypatch.setenv("PATH", f"{FOLDER / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name in ("VLLM_BASE_URL", "VLLM_API_KEY", "CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    return project


# The second variable is in GiB: memory for the KV cache, which a GPU would hold.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


@pytest.fixture(scope="session")
def server(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """Start one server for all tests that only send requests."""
    (plan,) = plan_servers({ModelSpec("vllm", str(tiny)): True}, ARGUMENTS)
    served = VllmServer(plan)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        served.start(str(FOLDER / "venv" / "bin" / "vllm"), GpuShare(), tmp_path_factory.mktemp("server") / "vllm.log")
    while served.health() != 200:
        assert served.exit_status() is None, served.log.read_text()
        time.sleep(0.5)  # poll: a real server signals its start in no other way
    yield served
    served.stop()
