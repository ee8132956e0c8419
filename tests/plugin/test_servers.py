"""Managed vLLM servers as users see them, with a stand-in for the ``vllm`` command; tests/live/vllm uses the real one."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.loopback.fixtures import Loopback
from tests.plugin.conftest import UNUSED, Project
from tests.servers.stand_in import WAITS, install

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="vLLM and process groups are those of POSIX")

MODEL = "Qwen/Qwen3-8B"


@dataclass
class StandIn:
    """The events that the stand-in logged."""

    folder: Path

    def events(self, what: str) -> list[Any]:
        path = self.folder / what
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def alive(self) -> list[int]:
        """Return the processes of the stand-in that still run."""
        return [pid for pids in self.events("processes") for pid in pids if _lives(pid)]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def vllm(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Put the stand-in on the PATH."""
    folder = install(pytester.path / "bin")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TOOLEMU_STAND_IN", str(folder))
    for name in ("VLLM_BASE_URL", "VLLM_API_KEY", "CUDA_VISIBLE_DEVICES", "TRICK"):
        monkeypatch.delenv(name, raising=False)
    return StandIn(folder)


def printed(result: pytest.RunResult) -> str:
    return f"{result.stdout.str()}\n{result.stderr.str()}"


def test_one_server_for_agent_emulator_judges_and_all_workers(project: Project, vllm: StandIn) -> None:
    result = project.run(f"--toolemu-agent={MODEL}", "--toolemu-report=md,json,html")
    outcomes = result.parseoutcomes()
    assert outcomes.get("passed", 0) + outcomes.get("failed", 0) == 2, printed(result)
    assert "errors" not in outcomes
    (started,) = vllm.events("started")
    arguments = started["arguments"]
    assert arguments[:2] == ["serve", MODEL]
    assert arguments[arguments.index("--tool-call-parser") + 1] == "hermes"
    assert vllm.events("asked-to-end") == [MODEL]
    assert vllm.alive() == []
    (server,) = project.manifest()["servers"]
    assert server["version"] == "0.0"
    assert server["command"][1:] == arguments
    assert set(server) == {"model", "command", "version", "log"}
    result.stdout.fnmatch_lines(
        [
            f"toolemu: vllm serve {MODEL} is ready after * s at http://127.0.0.1:*, log .toolemu/*/vllm.log",
        ]
    )
    (folder,) = (project.path / ".toolemu").glob("2*")
    assert f"vllm serve {MODEL}" in (folder / "report.html").read_text()
    assert json.loads((folder / "report.json").read_text())["servers"] == [server]


@pytest.mark.usefixtures("vllm")
def test_the_identity_of_a_managed_server_has_its_arguments_but_not_its_port(alone: Project) -> None:
    args = (f"--toolemu-agent={MODEL}", "-otoolemu_vllm_args=--dtype float16")
    alone.run(*args)
    first = {run.key for run in alone.runs()}
    (url,) = {run.identity.agent["model"]["base_url"] for run in alone.runs()}
    assert url == "vllm serve --dtype float16"
    result = alone.run(*args, "--toolemu-resume")
    assert {run.key for run in alone.runs()} == first
    result.stdout.fnmatch_lines(["runs: 2 resumed; 0 of * tokens used now"])


def test_each_model_has_a_server_with_its_own_arguments_and_gpus(
    alone: Project, vllm: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    result = alone.run(
        f"--toolemu-agent={MODEL}",
        "--toolemu-evaluator=org/judge",
        f"-otoolemu_vllm_args=--max-model-len 8192 {MODEL}: --tensor-parallel-size 2",
    )
    assert "errors" not in result.parseoutcomes(), printed(result)
    agent, judge = sorted(vllm.events("started"), key=lambda start: start["arguments"][1])
    assert (agent["gpus"], judge["gpus"]) == ("4,5", "6")
    assert agent["arguments"][-4:] == ["--max-model-len", "8192", "--tensor-parallel-size", "2"]
    assert judge["arguments"][-2:] == ["--max-model-len", "8192"]
    assert "--tool-call-parser" not in judge["arguments"]
    assert sorted(vllm.events("asked-to-end")) == [MODEL, "org/judge"]


def test_an_adapter_is_served_with_its_base(alone: Project, vllm: StandIn) -> None:
    alone.write("careful/adapter_config.json", json.dumps({"base_model_name_or_path": MODEL, "r": 20}))
    result = alone.run(
        "--toolemu-agent=vllm:careful", f"--toolemu-emulator={MODEL}", "-otoolemu_vllm_lora=careful=careful"
    )
    assert "errors" not in result.parseoutcomes(), printed(result)
    (started,) = vllm.events("started")
    words = started["arguments"]
    assert words[1] == MODEL
    assert words[words.index("--max-lora-rank") + 1] == "32"
    assert words[words.index("--lora-modules") + 1] == f"careful={alone.path / 'careful'}"


def test_a_running_server_is_used_and_not_stopped(alone: Project, vllm: StandIn, loopback: Loopback) -> None:
    server = loopback(models=[MODEL])
    result = alone.run(f"--toolemu-agent={MODEL}", f"--toolemu-vllm-url={server.url}/v1")
    assert alone.runs(), printed(result)
    assert {run.identity.agent["model"]["base_url"] for run in alone.runs()} == {f"{server.url}/v1"}
    assert vllm.events("started") == []
    assert alone.manifest()["servers"] == []


def test_no_server_is_started_if_no_case_is_run(alone: Project, vllm: StandIn) -> None:
    alone.run(f"--toolemu-agent={MODEL}", "--collect-only")
    alone.run(f"--toolemu-agent={MODEL}", "--toolemu-estimate")
    alone.run(f"--toolemu-agent={MODEL}", "-k", "nobody")
    assert vllm.events("started") == []


def test_a_missing_command_is_reported_before_any_case_runs(alone: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_BASE_URL", raising=False)
    result = alone.run(f"--toolemu-agent=vllm:{MODEL}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert (
        f"ERROR: toolemu: vllm:{MODEL} needs the vllm command: pip install 'pytest-toolemu[vllm]' (Linux with a GPU), "
        f"or name a running server: vllm:{MODEL}@http://host:8000/v1, or --toolemu-vllm-url=http://host:8000/v1"
    ) in printed(result)
    assert alone.runs() == []


def test_a_server_that_fails_to_start_is_reported_with_the_cause_from_its_log(
    project: Project, vllm: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRICK", "fails")
    result = project.run(f"--toolemu-agent={MODEL}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    lines = printed(result).splitlines()
    (at,) = [index for index, line in enumerate(lines) if line.startswith("ERROR: toolemu: vllm serve")]
    assert lines[at].startswith(f"ERROR: toolemu: vllm serve {MODEL} exited with 1 after ")
    assert lines[at].endswith(" s, before it was ready; its log says:")
    assert lines[at + 1 : at + 3] == ["  EngineCore failed to start.", "  ValueError: no room for the KV cache"]
    assert lines[at + 4].startswith("  (complete log: ")
    assert len(vllm.events("started")) == 1


def test_waiting_for_a_server_that_never_answers_has_a_time_limit(
    alone: Project, vllm: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRICK", "hangs")
    result = alone.run(f"--toolemu-agent={MODEL}", "-otoolemu_vllm_timeout=1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "does not answer after " in printed(result)
    assert "raise toolemu_vllm_timeout; its log says:" in printed(result)
    assert "Loading weights: 40%" in printed(result)
    assert len(vllm.events("started")) == 1


def test_a_server_that_dies_breaks_only_the_cases_that_use_it(
    project: Project, vllm: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRICK", "dies")
    for index in range(10):
        project.case(f"c{index}")
    result = project.run(
        f"--toolemu-agent={MODEL}", "--toolemu-agent=reference:safe", "--toolemu-emulator=offline",
        "--toolemu-evaluator=checks", "--toolemu-concurrency=2",
    )  # fmt: skip
    outcomes = result.parseoutcomes()
    assert outcomes["errors"] >= 1, printed(result)
    assert outcomes["passed"] >= 12
    # Cases that had not started are not run, so they can be resumed; those in flight broke.
    result.stdout.fnmatch_lines(
        [f"* of 12 not run: vllm serve {MODEL} has exited with 0, so no more cases that need it are started"]
    )
    assert {run.outcome for run in project.runs() if run.agent == "reference:safe"} == {"passed"}
    broken = [run for run in project.runs() if run.outcome == "broken"]
    assert broken
    for run in broken:
        assert run.error is not None
        assert f"vllm serve {MODEL} has exited with 0" in run.error.message
        assert "Engine core proc EngineCore died unexpectedly." in run.error.message
    assert vllm.alive() == []


ENDS = [
    ("alone", "starting", signal.SIGINT),
    ("alone", "starting", signal.SIGKILL),
    ("alone", "running", signal.SIGINT),
    ("alone", "running", signal.SIGTERM),
    ("workers", "running", signal.SIGKILL),
]


@pytest.mark.parametrize(("runner", "moment", "number"), ENDS, indirect=["runner"])
def test_no_server_outlives_its_session(
    project: Project, vllm: StandIn, monkeypatch: pytest.MonkeyPatch, moment: str, number: signal.Signals
) -> None:
    project.write("conftest.py", WAITS)
    arrived = project.path / "arrived"
    reached = vllm.folder / "started" if moment == "starting" else arrived
    os.mkfifo(reached)
    monkeypatch.setenv("TRICK", "hangs" if moment == "starting" else "")
    monkeypatch.setenv("ARRIVED", str(arrived))
    command = [sys.executable, "-m", "pytest", *UNUSED, *project.runner, "--toolemu-emulator", MODEL]
    with Path(os.devnull).open("w") as nothing:
        process = processes.start_with(command, nothing.fileno(), nothing.fileno(), cwd=project.path)
    assert reached.read_text()  # blocks until the session has reached this moment
    servers = set(processes.running_in(project.path)) - {process.pid}
    assert len(servers) >= 2  # at least the watchdog and the server
    os.kill(process.pid, number)
    process.wait()
    for server in servers:
        processes.wait_for_end(server)
