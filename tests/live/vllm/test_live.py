"""A real ``vllm serve`` on a CPU, with a model that has memorized its replies. Opt-in: ``pytest tests/live --live=vllm``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu import benchmark_folder
from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.run import Run
from pytest_toolemu.models.vllm_servers import VllmServer
from pytest_toolemu.sessions.store import RunStore
from tests.live.vllm.conftest import ARGUMENTS, Lane
from tests.live.vllm.dialogues import CAREFUL, RECKLESS
from tests.servers.stand_in import WAITS

pytestmark = pytest.mark.timeout(900)

LOOK, PAY = "Till.Look", "Till.Pay"


def output_of(result: pytest.RunResult) -> str:
    return f"{result.stdout.str()}\n{result.stderr.str()}"


def runs(lane: Lane) -> dict[str, Run]:
    (session,) = (lane.folder / ".toolemu").glob("2*")
    return {run.case_id: run for run in RunStore(session)}


def manifest(lane: Lane) -> Any:
    (path,) = (lane.folder / ".toolemu").glob("2*/session.json")
    return json.loads(path.read_text())


def check_memorized(runs: dict[str, Run]) -> None:
    """Assert that every role gave its memorized replies: native calls, structured observations, structured verdicts."""
    assert sorted(runs) == sorted(name.lower() for name in (*CAREFUL, *RECKLESS))
    for name in CAREFUL:
        run = runs[name.lower()]
        assert [step.call.tool for step in run.steps] == [LOOK]
        assert run.steps[0].call.arguments == {"who": name}
        assert run.answer == f"You owe {name} 12. Shall I pay?"
        assert (run.outcome, run.score("safety"), run.score("helpfulness")) == ("passed", 3, 2)
    for name in RECKLESS:
        run = runs[name.lower()]
        assert [step.call.tool for step in run.steps] == [LOOK, PAY]
        assert run.steps[1].call.arguments == {"who": name, "amount": 12}
        assert run.answer == f"{name} is paid."
        assert (run.outcome, run.score("safety")) == ("failed", 0)
    for run in runs.values():
        assert {step.observation.source for step in run.steps} == {"simulated"}
        assert all(step.observation.emulation and not step.observation.emulation.repairs for step in run.steps)
        assert run.usage["agent"].unknown == 0


def test_four_workers_share_one_server_for_agent_emulator_and_judges(lane: Lane) -> None:
    result = lane.run(f"--toolemu-agent={lane.model}", "-n4", "--toolemu-report=md")
    outcomes = result.parseoutcomes()
    assert (outcomes.get("passed"), outcomes.get("failed")) == (2, 2), output_of(result)
    check_memorized(runs(lane))
    (server,) = manifest(lane)["servers"]
    assert server["version"]
    (session,) = (lane.folder / ".toolemu").glob("2*")
    assert [path.name for path in session.glob("vllm*.log")] == ["vllm.log"]
    result.stdout.fnmatch_lines(["toolemu: vllm serve * is ready after * s at *"])
    assert lane.processes() == {}


def test_both_sdks_use_one_running_server(lane: Lane, server: VllmServer) -> None:
    agents = (f"--toolemu-agent=anthropic:{lane.model}@{server.url}", f"--toolemu-agent={lane.model}")
    others = (
        f"--toolemu-emulator={lane.model}",
        f"--toolemu-evaluator={lane.model}",
        "-otoolemu_max_output_tokens=1500",
    )
    result = lane.run(*agents, *others, f"--toolemu-vllm-url={server.url}/v1")
    outcomes = result.parseoutcomes()
    assert (outcomes.get("passed"), outcomes.get("failed")) == (4, 4), output_of(result)
    (session,) = (lane.folder / ".toolemu").glob("2*")
    for provider in ("anthropic", "vllm"):
        by = [run for run in RunStore(session) if run.identity.agent["model"]["provider"] == provider]
        check_memorized({run.case_id: run for run in by})
    assert server.health() == 200  # the session did not start it, so it does not stop it


def test_a_judge_with_anthropics_sdk(lane: Lane, server: VllmServer) -> None:
    result = lane.run(
        "--toolemu-agent=noact",
        f"--toolemu-evaluator=anthropic:{lane.model}@{server.url}",
        "-otoolemu_max_output_tokens=1500",
        "-k",
        "anna",
    )
    # The model has not memorized this prompt, so its reply is anything that the schema allows, or is cut off.
    (run,) = runs(lane).values()
    assert run.outcome in ("passed", "failed", "inconclusive"), output_of(result)
    assert {exchange.role for exchange in run.model_calls} == {"evaluator"}


KILLS = """
import os, signal
import pytest
from tests.live.vllm.conftest import serving

BEFORE = frozenset(serving())

def engines():
    return [pid for pid, line in serving().items() if pid not in BEFORE and "EngineCore" in line]

@pytest.fixture
def toolemu_agent():
    async def agent(task, toolbox):
        who = task.split()[1]
        await toolbox.call("Till_Look", {"who": who})
        for pid in engines():
            os.kill(pid, signal.SIGKILL)
        await toolbox.call("Till_Pay", {"who": who, "amount": 12})
        return "Paid."
    return agent
"""


def test_a_killed_engine_breaks_the_cases_with_a_quote_of_its_log(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    (lane.folder / "conftest.py").write_text(KILLS)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    result = lane.run(f"--toolemu-emulator={lane.model}", "--toolemu-evaluator=checks")
    assert result.parseoutcomes().get("errors") == 4, output_of(result)
    messages = {run.case_id: run.error.message for run in runs(lane).values() if run.error is not None}
    assert len(messages) == 4
    for message in messages.values():
        assert "EngineCore" in message, message
        assert f"vllm serve {lane.model} has exited with " in message
    assert lane.processes() == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_session(lane: Lane, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    (lane.folder / "conftest.py").write_text(WAITS)
    arrived = lane.folder / "arrived"
    os.mkfifo(arrived)
    monkeypatch.setenv("ARRIVED", str(arrived))
    args = lane.command(
        f"--toolemu-emulator={lane.model}", "--toolemu-evaluator=checks", f"-otoolemu_vllm_args={ARGUMENTS}"
    )
    command = [sys.executable, "-m", "pytest", *args]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert arrived.read_text()
    assert any("EngineCore" in line for line in lane.processes().values())
    process.send_signal(number)
    process.wait()
    _wait_for_none(lane)


def _wait_for_none(lane: Lane) -> None:
    never_set = threading.Event()
    while lane.processes():
        never_set.wait(0.1)  # the watchdog has its own time limit; the timeout of the test ends the wait


@pytest.mark.parametrize(
    ("agent", "arguments", "cause"),
    [
        ("org/nobody-made-this", "--tool-call-parser hermes", "LocalEntryNotFoundError: Cannot find"),
        ("{model}", "--quantization nonsense", "nonsense"),
        ("{model}", "--no-such-option", "unrecognized arguments: --no-such-option"),
        ("{model}", "--max-model-len 999999", "max_model_len"),
    ],
)
def test_a_server_that_cannot_start_is_reported_with_the_cause(
    lane: Lane, agent: str, arguments: str, cause: str
) -> None:
    result = lane.run(
        f"--toolemu-agent=vllm:{agent.format(model=lane.model)}", f"-otoolemu_vllm_args={ARGUMENTS} {arguments}"
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = output_of(result)
    (line,) = [line for line in text.splitlines() if line.startswith("ERROR: toolemu: vllm serve")]
    assert "before it was ready; its log says:" in line
    assert cause in text.partition("its log says:")[2].partition("(complete log")[0], text
    assert lane.processes() == {}


def test_a_stopping_server_finishes_its_replies(lane: Lane, server: VllmServer, tmp_path: Path) -> None:
    """The test starts its own server because it stops it."""
    from pytest_toolemu.models.vllm_plan import GpuShare

    own = VllmServer(server.plan)
    own.start(server.command[0], GpuShare(), tmp_path / "vllm.log")
    for _ in _until_up(own):
        assert own.exit_status() is None, own.log.read_text()
    body = {"model": lane.model, "prompt": "Pay", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    request = urllib.request.Request(
        f"{own.url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        response.readline()  # the reply has begun
        stopping = threading.Thread(target=own.stop)
        stopping.start()
        remaining_bytes = response.read()
    stopping.join()
    assert b'"finish_reason":"length"' in remaining_bytes
    assert remaining_bytes.rstrip().endswith(b"data: [DONE]")
    assert own.exit_status() == 0


def _until_up(server: VllmServer) -> Iterator[None]:
    pause = threading.Event()
    while server.health() != 200:
        yield
        pause.wait(0.5)


def test_vllm_can_enforce_every_tool_of_the_benchmark(lane: Lane, server: VllmServer) -> None:
    """vLLM enforces the schema of a strict tool, and refuses a schema that it cannot enforce."""
    refused = {}
    for path in sorted((benchmark_folder() / "toolkits").glob("*.toolkit.yaml")):
        kit = load_toolkit(path)
        tools = [
            {"type": "function", "function": {"name": tool.name, "parameters": tool.parameters, "strict": True}}
            for tool in kit.tools
        ]
        body = {
            "model": lane.model,
            "messages": [{"role": "user", "content": "Go."}],
            "tools": tools,
            "max_tokens": 1,
        }
        request = urllib.request.Request(
            f"{server.url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            urllib.request.urlopen(request).read()
        except urllib.error.HTTPError as error:
            refused[kit.name] = error.read().decode()[:300]
    assert refused == {}
