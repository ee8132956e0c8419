"""The official Python SDK, version 2, and the OpenAI Agents SDK. Other clients run in ``tests/live/mcp``."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from mcp import Client, MCPError
from mcp_types.jsonrpc import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter
from mcp_types.methods import validate_server_result
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from pytest_toolemu.agents.mcp import served
from pytest_toolemu.core.run import Call, Observation, Run, Trajectory
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.emulators.layers import OfflineEmulator, ValidatedEmulator
from pytest_toolemu.errors import InconclusiveError
from tests.adapters.framework_case import BAD_ARGUMENTS, ENDLESS, SCRIPT, Turn, lockers
from tests.adapters.openai_agents_model import scripted
from tests.agents.scene import calls, toolbox
from tests.mcp.raw_client import post, request, stateless, tool_call
from tests.mcp.test_served_tools import HangingEmulator, run_served

SHORT = 0.5
"""A time-out in seconds that a hanging emulator always exceeds."""


@pytest.mark.parametrize(
    ("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25"), ("2026-07-28", "2026-07-28")]
)
def test_the_python_sdk_lists_and_calls_tools_with_and_without_handshake(mode: str, version: str) -> None:
    async def talking() -> Toolbox:
        box = toolbox()
        async with served(box) as url, Client(url, mode=mode) as client:
            assert client.session.protocol_version == version
            (tool,) = (await client.list_tools()).tools
            assert (tool.name, tool.input_schema) == ("Lockers_Open", box.tools[0].parameters)
            results = await asyncio.gather(*(client.call_tool(tool.name, {"locker": str(n)}) for n in range(3)))
            assert sorted((result.structured_content or {})["nth"] for result in results) == [0, 1, 2]
            with pytest.raises(MCPError, match="Method not found"):
                await client.list_prompts()
        return box

    assert len(calls(asyncio.run(talking()))) == 3


def test_the_python_sdk_receives_an_error_of_a_tool_as_one() -> None:
    async def emulator(_: Call, __: Trajectory) -> Observation:
        return Observation(content={"error": "Jammed: it is stuck"}, source="offline")

    async def talking() -> Any:
        async with served(toolbox(emulator=emulator)) as url, Client(url) as client:
            return await client.call_tool("Lockers_Open", {"locker": "7"})

    result = asyncio.run(talking())
    assert (result.is_error, result.content[0].text) == (True, '{"error":"Jammed: it is stuck"}')


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_timeout_of_the_python_sdk_makes_the_case_inconclusive(mode: str) -> None:
    async def talking() -> None:
        async with (
            served(toolbox(emulator=HangingEmulator())) as url,
            Client(url, mode=mode, read_timeout_seconds=20) as client,
        ):
            with pytest.raises(MCPError, match="imed out"):
                await client.call_tool("Lockers_Open", {"locker": "7"}, read_timeout_seconds=SHORT)

    with pytest.raises(InconclusiveError, match="raise the timeout of its MCP client"):
        asyncio.run(talking())


@pytest.mark.parametrize("version", [*HANDSHAKE_PROTOCOL_VERSIONS, "2026-07-28"])
def test_every_result_conforms_to_the_schema_of_its_version(version: str) -> None:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    messages: list[tuple[dict[str, Any], dict[str, str]]] = [
        (each, {"MCP-Protocol-Version": version})
        for each in (request("initialize", params), request("ping"), request("tools/list"), tool_call())
    ]
    if version == "2026-07-28":
        call = stateless("tools/call", name="Lockers_Open", arguments={"locker": "7"})
        messages = [stateless("server/discover"), stateless("tools/list"), call]

    async def asking() -> list[Any]:
        async with served(toolbox()) as url:
            return [(await post(url, message, headers))[1] for message, headers in messages]

    for (message, _), content in zip(messages, asyncio.run(asking()), strict=True):
        assert isinstance(jsonrpc_message_adapter.validate_python(content), JSONRPCResponse)
        validate_server_result(message["method"], version, content["result"])


def test_every_error_conforms_to_the_schema() -> None:
    bodies: list[Any] = [b"{", [], request("unknown"), request("tools/call", {})]

    async def asking() -> list[Any]:
        async with served(toolbox()) as url:
            return [(await post(url, body))[1] for body in bodies] + [(await post(url, {}, path="/x/mcp"))[1]]

    for content in asyncio.run(asking()):
        assert isinstance(jsonrpc_message_adapter.validate_python(content), JSONRPCError)


def run_openai_agent(turns: tuple[Turn, ...], emulator: Any = None, timeout: float = 20, **limits: Any) -> Run:
    """Run an agent of the OpenAI Agents SDK that has no tools but those of an MCP server."""

    async def agent(task: Task, box: Toolbox) -> str:
        set_tracing_disabled(True)
        async with (
            served(box) as url,
            MCPServerStreamableHttp({"url": url}, client_session_timeout_seconds=timeout) as server,
        ):
            doorman = Agent(name="doorman", model=scripted(turns), mcp_servers=[server])
            return str((await Runner.run(doorman, task, run_config=RunConfig(tracing_disabled=True))).final_output)

    return asyncio.run(run_served(agent, emulator or ValidatedEmulator(OfflineEmulator()), **limits))


def test_an_agent_of_the_openai_agents_sdk_calls_emulated_tools() -> None:
    run = run_openai_agent(SCRIPT)
    assert (run.outcome, run.answer, lockers(run)) == ("passed", "Opened.", ["7", "7", "8"])


def test_an_agent_of_the_openai_agents_sdk_stops_at_the_step_limit() -> None:
    run = run_openai_agent(ENDLESS, max_steps=3)
    assert (run.stop, lockers(run), run.outcome) == ("step_limit", ["7"] * 3, "passed")


def test_bad_arguments_reach_the_emulator() -> None:
    """The framework itself answers a call whose arguments are no JSON."""
    run = run_openai_agent(BAD_ARGUMENTS)
    (step,) = run.steps
    assert step.call.arguments == {"locker": 7}
    assert "7 is not of type" in step.observation.text


def test_a_timeout_of_the_openai_agents_sdk_makes_the_case_inconclusive() -> None:
    run = run_openai_agent(SCRIPT, HangingEmulator(), timeout=SHORT)
    assert run.outcome == "inconclusive"
    assert "OpenAI Agents SDK: client_session_timeout_seconds" in run.reasons[0]
