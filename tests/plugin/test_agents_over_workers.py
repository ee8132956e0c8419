"""Existing agents of frameworks, commands, and MCP clients run in every worker, and no call reaches another case."""

from __future__ import annotations

from tests.plugin.conftest import Project

COMMAND = """
import json, os, sys, urllib.request

def call(url, who):
    params = {"name": "Till_Look", "arguments": {"who": who}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json", "Accept": "application/json"})) as response:
        return json.load(response)["result"]["structuredContent"]["balance"]

if __name__ == "__main__":
    who = sys.stdin.read().split()[1]
    print(f"{call(os.environ['TOOLEMU_MCP_URL'], who)}: shall I pay {who}?")
"""

AGENTS = """
import asyncio
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from command import call
from pytest_toolemu.agents.adapters.pydantic_ai import emulated
from pytest_toolemu.agents.mcp import served

def reply(messages, _):
    who = str(messages[0].parts[0].content).split()[1]
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("Till_Look", {"who": who})])
    return ModelResponse([TextPart(f"{messages[-1].parts[0].content['balance']}: shall I pay {who}?")])

cashier = Agent(FunctionModel(reply), name="cashier")

@cashier.tool_plain
def Till_Look(who: str) -> dict:
    raise RuntimeError("the real till was opened")

async def framework(task, toolbox):
    with emulated(cashier, toolbox):
        return (await cashier.run(task)).output

async def over_mcp(task, toolbox):
    who = task.split()[1]
    async with served(toolbox) as url:
        return f"{await asyncio.to_thread(call, url, who)}: shall I pay {who}?"
"""


def test_a_session_warns_once_that_no_client_asked_for_the_tools(project: Project) -> None:
    result = project.run("--toolemu-agent=cmd: echo Shall I?")
    output = result.stdout.str()
    warning = (
        "no MCP client asked for the tools of the case; if the agent should have used them, check that it gets their "
        "address: TOOLEMU_MCP_URL in a program, {mcp_url} in a file, or the URL with tools_port in the service"
    )
    assert output.splitlines().count(f"echo Shall I?: {warning}") == 1, output
    assert {run.agent_warning for run in project.runs()} == {warning}


def test_frameworks_commands_and_mcp_clients_run_in_workers(alone: Project) -> None:
    alone.runner = ("-n", "2")
    alone.replace_cases(("anna", "bert", "cleo", "dora"))
    alone.write("command.py", COMMAND)
    alone.write("mine.py", AGENTS)
    agents = ("cmd: python command.py", "mine:framework", "mine:over_mcp")
    result = alone.run(*(f"--toolemu-agent={agent}" for agent in agents))
    result.assert_outcomes(passed=12)
    runs = {(run.agent, run.case_id): run for run in alone.runs()}
    assert len(runs) == 12
    for (_, case), run in runs.items():
        assert [step.call.arguments for step in run.steps] == [{"who": case.title()}]
        assert run.answer.strip() == f"12: shall I pay {case.title()}?"
