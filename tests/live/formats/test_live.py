"""Exports, opened by the projects that define the formats: the models of Harbor (ATIF), and Inspect AI.

The first run installs both into ``.live/formats`` (600 MB), where they are kept. Of Harbor, only its models are used,
without its dependencies.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.authoring.importers.trace_files import read_conversations
from tests.live.framework_environment import FOLDER
from tests.reporting import runs
from tests.reporting.test_exchange_formats import export, model_run

HARBOR, INSPECT = "harbor==0.26.0", ("inspect-ai>=0.3.285", "pandas", "pyarrow")

CHECK_TRAJECTORIES = """\
import pathlib, sys
from harbor.models.trajectories import Trajectory
for path in pathlib.Path(sys.argv[1]).iterdir():
    print(len(Trajectory.model_validate_json(path.read_text()).steps))
"""
READ_LOGS = """\
import json, sys
from inspect_ai.analysis import evals_df, messages_df, samples_df
from inspect_ai.log import list_eval_logs, read_eval_log
samples, evals, messages = (read(sys.argv[1], quiet=True) for read in (samples_df, evals_df, messages_df))
logs = [read_eval_log(log.name) for log in list_eval_logs(sys.argv[1])]
print(json.dumps({
    "samples": json.loads(samples[["id", "epoch", "score_safety", "score_helpfulness", "total_tokens", "error"]].to_json(orient="values")),
    "evals": json.loads(evals[["solver", "model", "score_safety_mean"]].to_json(orient="values")),
    "roles": list(messages["role"]),
    "tools": [[tool.name for tool in log.samples[0].events[0].tools] for log in logs],
}))
"""
# A task of Inspect AI itself: an agent with a tool, and a model that replies as told.
WRITE_LOG = """\
import sys
from inspect_ai import Task, eval
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.tool import tool

@tool
def cancel_order():
    async def execute(order_id: str):
        '''Cancel an order.

        Args:
            order_id: The order.
        '''
        return '{"status": "canceled"}'
    return execute

outputs = [
    ModelOutput.for_tool_call("mockllm/model", "cancel_order", {"order_id": "A1"}),
    ModelOutput.for_tool_call("mockllm/model", "submit", {"answer": "Your order A1 is canceled."}),
]
for output in outputs:
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # nothing is downloaded to count tokens
question = "Please cancel my last order."
task = Task(dataset=[Sample(input=question)], solver=react(prompt="You serve a shop.", tools=[cancel_order()]))
eval(task, model=get_model("mockllm/model", custom_outputs=outputs), log_dir=sys.argv[1], display="none")
"""


@pytest.fixture(scope="module")
def python() -> Path:
    """Return the interpreter of an environment with Inspect AI and the models of Harbor."""
    interpreter = FOLDER / "formats" / "bin" / "python"
    if not interpreter.exists():
        subprocess.run([sys.executable, "-m", "venv", FOLDER / "formats"], check=True)
    install: list[str | Path] = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *INSPECT], check=True)
    subprocess.run([*install, "--no-deps", "--ignore-requires-python", HARBOR], check=True)
    return interpreter


def run(python: Path, program: str, folder: Path) -> str:
    result = subprocess.run([python, "-c", program, folder], capture_output=True, text=True, check=False, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def session(tmp_path: Path) -> Path:
    stored = (
        model_run(),
        runs.hostile(),
        runs.run("bert", safety=0, agent="b"),
        runs.run("bert", safety=None, trial=2, agent="b"),
    )
    return runs.session(tmp_path / "session", *stored)


@pytest.mark.timeout(900)
def test_the_models_of_harbor_accept_the_trajectories(python: Path, session: Path) -> None:
    export(session, "--format=atif")
    assert sorted(run(python, CHECK_TRAJECTORIES, session / "atif").split()) == ["3", "5", "5", "7"]


@pytest.mark.timeout(900)
def test_inspect_reads_samples_scores_messages_and_tools(python: Path, session: Path) -> None:
    export(session, "--format=inspect")
    read: dict[str, Any] = json.loads(run(python, READ_LOGS, session / "inspect"))
    assert ["anna", 1, 3, 3, 107, ""] in read["samples"]
    assert [row[:4] for row in read["samples"] if row[0] == "bert"] == [["bert", 1, 0, 3], ["bert", 2, None, 3]]
    assert ["gpt-4o", "openai/gpt-4o", 3.0] in read["evals"]
    assert ["b", "none/none", 0.0] in read["evals"]
    assert read["roles"].count("tool") == 9
    assert ["Purse_FindPayees", "Purse_Pay"] in read["tools"]


@pytest.mark.timeout(900)
def test_inspect_view_serves_the_logs(python: Path, session: Path) -> None:
    export(session, "--format=inspect")
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    command = [str(python.parent / "inspect"), "view", "--log-dir", str(session / "inspect"), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120.0
        while socket.socket().connect_ex(("127.0.0.1", port)) and time.monotonic() < deadline:
            time.sleep(0.2)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/logs") as response:
            names = [log["name"] for log in json.load(response)["files"]]
        assert len(names) == 3
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(900)
def test_a_log_of_inspect_is_imported(python: Path, tmp_path: Path) -> None:
    run(python, WRITE_LOG, tmp_path)
    (path,) = tmp_path.glob("*.eval")
    (conversation,) = read_conversations(path, {})
    assert conversation.user_messages[0] == "Please cancel my last order."
    assert next((call.name, call.arguments) for call in conversation.calls) == ("cancel_order", {"order_id": "A1"})
    assert conversation.calls[0].result == {"status": "canceled"}
    assert {tool.name for tool in conversation.tools} == {"cancel_order", "submit"}
