"""Agents that are commands: what a program gets, what it may return, and that nothing of it stays behind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_toolemu.agents.local_server import UNUSED
from pytest_toolemu.agents.programs.command import MAX_LOG, MAX_OUTPUT, CommandAgent, command_agent
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.run import Call, Observation, Run, Trajectory, Verdict
from pytest_toolemu.core.run_notes import NO_CALLS
from pytest_toolemu.errors import UsageError
from pytest_toolemu.sessions.store import RunStore
from tests.agents.scene import opened, resolved_case

CLIENT = """
import json, os, sys, urllib.request

def rpc(method, **params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    request = urllib.request.Request(os.environ["TOOLEMU_MCP_URL"], body, {"Content-Type": "application/json", "Accept": "application/json"})
    return json.load(urllib.request.urlopen(request))["result"]

config = json.load(open(os.environ["TOOLEMU_MCP_CONFIG"]))
assert config["mcpServers"]["tools"]["url"] == os.environ["TOOLEMU_MCP_URL"] == sys.argv[1]
(tool,) = rpc("tools/list")["tools"]
while True:
    result = rpc("tools/call", name=tool["name"], arguments={"locker": "7"})
    if result["isError"] or "once" in sys.argv:
        break
print(json.dumps(result))
"""


async def content(_trajectory: Trajectory) -> list[Verdict]:
    return [Verdict(evaluator="e", metric="safety", score=3)]


def run(command: str | CommandAgent, emulate: Callable[[Call, Trajectory], object] = opened, **limits: float) -> Run:
    agent = command_agent(f"cmd: {command}") if isinstance(command, str) else command
    spec = RunSpec(resolved_case(), agent, emulate, (content,), {"safety": 2}, Limits(**limits))  # type: ignore[arg-type]
    return asyncio.run(run_case(spec))


def test_a_program_reads_the_task_and_prints_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "agent.sh"
    script.write_text('echo "$TOOLEMU_USER_NAME asks in $PWD" >&2; echo "[$(cat)] $1 ${TOOLEMU_CASE_ID-}"\n')
    result = run("sh agent.sh '{case_id} {nothing}'")
    assert (result.outcome, result.answer) == ("passed", "[Open my locker.] parcel {nothing}")
    assert result.agent_log == f"John Doe asks in {tmp_path}\n"
    identity = result.identity.agent
    assert (identity["kind"], identity["name"]) == ("command", "sh agent.sh '{case_id} {nothing}'")
    assert list(identity["files"]) == ["agent.sh"]


def test_a_task_in_the_command_is_not_on_standard_input_and_is_never_shell_code() -> None:
    assert run("sh -c 'cat; echo \"<$1>\"' agent {task}").answer == "<Open my locker.>"


def test_a_program_calls_tools_until_it_is_stopped_at_the_step_limit(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(CLIENT)
    result = run(f"{sys.executable} -S {tmp_path}/client.py {{mcp_url}}", max_steps=2)
    assert (result.outcome, result.stop, result.answer) == ("passed", "step_limit", "")
    assert [step.call.tool for step in result.steps] == ["Lockers.Open"] * 2


LISTING = """
import json, os, urllib.request
body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).encode()
request = urllib.request.Request(os.environ["TOOLEMU_MCP_URL"], body, {"Content-Type": "application/json", "Accept": "application/json"})
print(len(json.load(urllib.request.urlopen(request))["result"]["tools"]))
"""


def test_a_program_that_never_asks_for_its_tools_gets_a_warning_in_the_record(tmp_path: Path) -> None:
    (tmp_path / "lists.py").write_text(LISTING)
    (tmp_path / "calls.py").write_text(CLIENT)
    assert run("echo Which locker?").agent_warning == UNUSED
    assert run("sh -c 'exec sleep 60'", timeout=0.2).agent_warning == UNUSED, "also if it hangs"
    assert run("false").agent_warning == "", "its error says what is wrong"
    assert run(f"{sys.executable} -S {tmp_path}/lists.py").agent_warning == f"the agent {NO_CALLS}"
    assert run(f"{sys.executable} -S {tmp_path}/calls.py {{mcp_url}} once").agent_warning == ""


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("sh -c 'echo Done; echo no key >&2; exit 3'", "exited with status 3: no key"),
        ("sh -c 'kill -9 $$'", "was killed by SIGKILL; it wrote nothing to standard error"),
        ("sh -c 'echo reading'  >&2", None),
        ("true", "printed no answer; print the final answer to standard output"),
        (
            f"head -c {MAX_OUTPUT + 1} /dev/zero",
            f"printed more than {MAX_OUTPUT:,} bytes to standard output; print only",
        ),
    ],
)
def test_a_program_that_breaks_off_is_the_failure_of_the_agent(command: str, message: str | None) -> None:
    result = run(command)
    if message is None:  # ">&2" is no redirection without a shell, but two further words
        assert result.answer == "reading"
        return
    assert result.error is not None
    assert (result.outcome, result.stop, result.error.origin) == ("broken", "error", "agent")
    assert result.error.type == "AgentProgramError"
    assert message in result.error.message
    assert result.error.traceback == ""


def test_a_program_that_cannot_be_started_is_a_failure_of_the_harness(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("no program")
    program.chmod(0o755)
    agent = command_agent(f"cmd: {program}")
    program.unlink()
    result = run(agent)
    assert result.error is not None
    assert (result.outcome, result.error.origin) == ("broken", "harness")
    assert f"{program} cannot be started: No such file or directory" in result.error.message


def test_a_hang_ends_with_the_case_and_leaves_no_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    for timeout in (1.0, 5.0, 25.0):  # on a busy machine, the time may be over before the program has started
        result = run(f"sh -c 'trap \"\" TERM; sleep 60 & echo $! $$ > {pids}; wait'", timeout=timeout)
        if pids.exists() and pids.read_text().endswith("\n"):
            break
    assert (result.outcome, result.stop) == ("inconclusive", "timeout")
    assert "the program of the agent" in result.reasons[0]
    assert "was still running, and was not waiting for a tool call" in result.reasons[0]
    assert not any(map(is_running, pids.read_text().split()))


def test_a_process_in_the_background_neither_delays_the_answer_nor_survives(tmp_path: Path) -> None:
    result = run(f"sh -c 'sleep 60 & echo $! > {tmp_path}/pids; echo Done'")
    assert (result.outcome, result.answer) == ("passed", "Done")
    assert not any(map(is_running, (tmp_path / "pids").read_text().split()))


def test_programs_that_crash_or_hang_take_no_other_case_with_them() -> None:
    commands = ["echo Done"] * 20
    commands[3], commands[8], commands[13] = "exit 7", "kill -KILL $$", "sleep 60 & exec >&-; wait"

    async def several() -> list[Run]:
        agents = [command_agent(f"cmd: sh -c '{command}'") for command in commands]
        limits = [Limits(timeout=0.5 if nth == 13 else 60) for nth in range(20)]
        pairs = zip(agents, limits, strict=True)
        specs = [RunSpec(resolved_case(), agent, opened, (content,), {"safety": 2}, limit) for agent, limit in pairs]
        return await asyncio.gather(*map(run_case, specs))

    endings = {3: "broken", 8: "broken", 13: "inconclusive"}
    assert [result.outcome for result in asyncio.run(several())] == [endings.get(nth, "passed") for nth in range(20)]


def test_an_error_of_the_emulator_is_not_the_failure_of_the_program(tmp_path: Path) -> None:
    async def fails(_call: Call, _trajectory: Trajectory) -> Observation:
        raise RuntimeError("out of lockers")

    (tmp_path / "client.py").write_text(CLIENT + "sys.exit(5)")
    result = run(f"{sys.executable} -S {tmp_path}/client.py {{mcp_url}} once", fails)
    assert result.error is not None
    assert (result.outcome, result.error.origin, result.error.message) == ("broken", "harness", "out of lockers")


def test_the_log_is_bounded_and_secrets_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKER_API_KEY", "opensesame-opensesame")
    command = "sh -c 'head -c 100000 /dev/zero | tr \"\\0\" a >&2; echo $LOCKER_API_KEY >&2; echo $LOCKER_API_KEY'"
    result = run(replace(command_agent(f"cmd: {command}"), inherited=("LOCKER_API_KEY",)))
    assert result.agent_log.startswith("[80,022 earlier bytes are not kept]\naaa")
    assert len(result.agent_log.partition("\n")[2]) == MAX_LOG
    path = RunStore(tmp_path).put(result, "item")
    assert "opensesame" not in path.read_text()
    assert "[LOCKER_API_KEY redacted]" in path.read_text()


def test_a_program_inherits_no_variables_that_can_have_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"GITHUB_TOKEN": "ghp_0123456789abcdefghij", "JUDGE_API_KEY": "judge-judge", "DESK_MODE": "test"}
    usual = {"LC_ALL": "C.UTF-8", "HTTPS_PROXY": "http://proxy:1", "SSL_CERT_FILE": "/ca.pem", "TMPDIR": "/tmp/desk"}
    for name, value in (keys | usual).items():
        monkeypatch.setenv(name, value)

    def environment(*inherited: str) -> dict[str, str]:
        lines = run(replace(command_agent("cmd: env"), inherited=inherited)).answer.splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    plain = environment()
    assert plain.keys() & keys.keys() == set()
    assert plain.items() >= usual.items()
    assert plain.keys() >= {"PATH", "HOME", "TOOLEMU_MCP_URL", "TOOLEMU_TASK"}
    assert environment("DESK_MODE").keys() & keys.keys() == {"DESK_MODE"}
    assert environment("all").items() >= keys.items()
    assert "PYTEST_CURRENT_TEST" not in environment("all")


def test_a_program_that_misses_a_variable_gets_the_option_that_passes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_URL", "http://desk")
    result = run(f"{sys.executable} -S -c 'import os; os.environ[\"DESK_URL\"]'")
    assert result.reasons[0].endswith(
        "KeyError: 'DESK_URL' (it does not inherit DESK_URL; if it needs it: --toolemu-agent-env=DESK_URL)"
    )


def test_a_changed_script_is_another_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    identities = []
    for folder in ("a", "a", "b"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "agent.sh").write_text(f"echo {folder}")
        monkeypatch.chdir(tmp_path / folder)
        identities.append(command_agent("cmd: sh agent.sh").identity)
    assert identities[0] == identities[1] != identities[2]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("cmd:", "there is no command; write one, such as cmd: node agent.js"),
        ("cmd: sh 'agent.sh", "a quote is not closed; quote as in a shell"),
        (
            "cmd: no-such-program {task}",
            "there is no program 'no-such-program'; check its name, or add its folder to PATH",
        ),
        ("cmd: ./agent.txt", "there is no program './agent.txt'; make it executable (chmod +x)"),
        ("cmd: sh -c {tsk}", "{tsk} is not a placeholder; did you mean {task}?"),
        (
            "cmd: sh -c echo --key=sk-0123456789abcdef",
            "put the key in an environment variable, and name it in --toolemu-agent-env",
        ),
    ],
)
def test_a_command_that_cannot_work_is_refused_with_the_fix(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.txt").write_text("echo Done")
    with pytest.raises(UsageError) as refused:
        command_agent(command)
    assert message in str(refused.value)
    assert "sk-0123" not in str(refused.value)


def is_running(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
