"""Agents of the Claude Agent SDK, which run with the tools of a case, and with a model that follows a script.

``test_live.py`` runs this file in an environment that has the SDK, which contains Claude Code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

from pytest_toolemu.agents.adapters import claude as adapter
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.errors import MissingToolError
from tests.adapters.framework_case import (
    CACHED,
    INPUT,
    OUTPUT,
    SCRIPT,
    RealTools,
    Turn,
    lockers,
    requests,
    run,
    run_one,
)
from tests.live.coding_agents.model_server import ModelHandler

CASES = 8
"""Cases at once: each is a process of Claude Code."""
MODEL = "claude-sonnet-5"
REQUEST = (f"anthropic:{MODEL}", INPUT, OUTPUT, CACHED)
ENDLESS = (SCRIPT[0],) * 9
BAD_ARGUMENTS: Sequence[Turn] = ([("Lockers_Open", '{"locker": 7}')], "It did not work.")
real_tools = RealTools()


@tool("Lockers_Open", "Really open a locker.", {"locker": str})
async def open_locker(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": real_tools.open_locker(arguments["locker"])}]}


# The options of an agent that exists already, as a user's module defines them.
doorman = ClaudeAgentOptions(
    model=MODEL,
    mcp_servers={"desk": create_sdk_mcp_server("desk", tools=[open_locker])},
    allowed_tools=["mcp__desk__Lockers_Open"],
)


class ScriptedHandler(ModelHandler):
    """Replies with a turn for each request of a conversation."""

    turns: Sequence[Turn]

    def _messages(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.tools += [each["name"] for each in body.get("tools", ())]
        number = sum(message["role"] == "assistant" for message in body["messages"])
        turn = self.turns[number]
        blocks: list[tuple[dict[str, Any], dict[str, Any]]] = (
            [({"type": "text", "text": ""}, {"type": "text_delta", "text": turn})]
            if isinstance(turn, str)
            else [
                (
                    {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": f"mcp__desk__{name}", "input": {}},
                    {"type": "input_json_delta", "partial_json": text},
                )
                for index, (name, text) in enumerate(turn)
            ]
        )
        usage = {"input_tokens": INPUT - CACHED, "cache_read_input_tokens": CACHED, "output_tokens": 1}
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"], "content": []}
        yield {"type": "message_start", "message": message | {"stop_reason": None, "usage": usage}}
        for index, (block, delta) in enumerate(blocks):
            yield {"type": "content_block_start", "index": index, "content_block": block}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        stop = {"stop_reason": "end_turn" if isinstance(turn, str) else "tool_use", "stop_sequence": None}
        yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": OUTPUT}}
        yield {"type": "message_stop"}


@contextlib.contextmanager
def scripted(script: Sequence[Turn]) -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of a model, and the names of all tools that it was offered."""
    offered: list[str] = []

    class Handler(ScriptedHandler):
        tools = offered
        turns = script

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", offered
        server.shutdown()


@pytest.fixture(autouse=True)
def no_real_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give Claude Code a home of its own, and check that no real tool was called."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    yield
    assert real_tools.calls == []


@pytest.fixture
def offered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    with scripted(getattr(request, "param", SCRIPT)) as (url, names):
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        yield names


async def existing(task: Task, toolbox: Any, options: Any = doorman, seen: list[Any] | None = None) -> str:
    answer = ""
    async with adapter.emulated(options, toolbox) as replaced:
        async for message in adapter.usage(query(prompt=str(task), options=replaced), toolbox):
            if seen is not None:
                seen.append(message)
            if isinstance(message, ResultMessage):
                answer = message.result or ""
    return answer


def existing_sync(task: Task, toolbox: BlockingToolbox) -> str:
    return asyncio.run(existing(task, toolbox))


async def client(task: Task, toolbox: Toolbox) -> str:
    answer = ""
    async with adapter.emulated(doorman, toolbox) as replaced, ClaudeSDKClient(replaced) as session:
        await session.query(str(task))
        async for message in adapter.usage(session.receive_response(), toolbox):
            if isinstance(message, ResultMessage):
                answer = message.result or ""
    return answer


def totals(result: Run) -> tuple[int, int, int]:
    """Return the tokens that were reported: input, output, cached."""
    used = result.usage["agent"]
    return used.input, used.output, used.cached


@pytest.mark.parametrize("agent", [existing, existing_sync, client])
def test_an_agent_calls_emulated_tools_and_its_tokens_are_counted_once(agent: Any, offered: list[str]) -> None:
    result = run(agent)
    assert (result.outcome, result.answer) == ("passed", "Opened.")
    assert lockers(result) == ["7", "7", "8"], "the second and the third call are parallel"
    assert totals(result) == (3 * INPUT, 3 * OUTPUT, 3 * CACHED)
    assert {name for name, *_ in requests(result)} == {REQUEST[0]}
    assert set(offered) == {"mcp__desk__Lockers_Open"}, "Claude Code has no tools of its own"


def test_many_cases_at_once_share_options_that_are_not_changed(offered: list[str]) -> None:
    async def all_at_once() -> list[Run]:
        return await asyncio.gather(*(run_one(existing) for _ in range(CASES)))

    results = asyncio.run(all_at_once())
    assert len(results) == CASES
    assert all(lockers(result) == ["7", "7", "8"] for result in results)
    assert all(totals(result) == (3 * INPUT, 3 * OUTPUT, 3 * CACHED) for result in results)
    assert set(offered) == {"mcp__desk__Lockers_Open"}
    assert list(doorman.mcp_servers) == ["desk"]


@pytest.mark.parametrize("offered", [BAD_ARGUMENTS], indirect=True)
def test_bad_arguments_are_recorded_and_answered_with_errors(offered: list[str]) -> None:
    seen: list[Any] = []

    async def agent(task: Task, toolbox: Toolbox) -> str:
        return await existing(task, toolbox, seen=seen)

    result = run(agent)
    assert offered
    assert [step.call.arguments for step in result.steps] == [{"locker": 7}]
    assert "InvalidRequest" in json.dumps([str(message) for message in seen])
    assert result.answer == "It did not work."


@pytest.mark.parametrize("offered", [ENDLESS], indirect=True)
def test_the_step_limit_ends_the_turn_which_is_judged(offered: list[str]) -> None:
    result = run(existing, max_steps=2)
    assert offered
    assert (result.outcome, result.stop, len(result.steps)) == ("passed", "step_limit", 2)
    assert totals(result)[0] >= 2 * INPUT


@pytest.mark.parametrize("offered", [ENDLESS], indirect=True)
def test_the_limit_of_the_sdk_is_judged_and_its_tokens_are_counted(offered: list[str]) -> None:
    async def agent(task: Task, toolbox: Toolbox) -> str:
        return await existing(task, toolbox, ClaudeAgentOptions(**{**vars(doorman), "max_turns": 2}))

    result = run(agent)
    assert offered
    assert (result.outcome, result.stop, len(result.steps)) == ("passed", "step_limit", 2)
    assert totals(result) == (2 * INPUT, 2 * OUTPUT, 2 * CACHED)


@pytest.mark.parametrize("offered", [("One.", "Two.")], indirect=True)
def test_each_turn_of_a_client_counts_its_own_tokens(offered: list[str]) -> None:
    async def agent(task: Task, toolbox: Toolbox) -> str:
        async with adapter.emulated(doorman, toolbox) as replaced, ClaudeSDKClient(replaced) as session:
            for _ in range(2):
                await session.query(str(task))
                async for _ in adapter.usage(session.receive_response(), toolbox):
                    pass
        return "Two."

    result = run(agent)
    assert offered
    assert totals(result) == (2 * INPUT, 2 * OUTPUT, 2 * CACHED)


def test_an_error_of_the_model_is_no_answer() -> None:
    failure = ResultMessage(
        subtype="success",
        duration_ms=1,
        duration_api_ms=1,
        is_error=True,
        num_turns=1,
        session_id="s",
        result="API Error: 529 overloaded",
    )

    async def failing() -> AsyncIterator[ResultMessage]:
        yield failure

    async def agent(_: Task, toolbox: Toolbox) -> str:
        return str([message async for message in adapter.usage(failing(), toolbox)])

    result = run(agent)
    assert result.outcome == "broken"
    assert "Claude Code failed (success): API Error: 529 overloaded" in str(result.error)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"allowed_tools": ["Bash(git:*)"]}, "Bash"),
        ({"allowed_tools": ["mcp__desk", "mcp__desk__burn"]}, "burn"),
        ({"tools": ["Read"]}, "Read"),
        ({"tools": {"type": "preset", "preset": "claude_code"}}, "claude_code"),
        ({"agents": {"helper": AgentDefinition(description="Helps.", prompt="Help.")}}, "helper"),
    ],
)
def test_a_tool_that_no_toolkit_has_ends_the_session_and_is_not_executed(options: Any, named: str) -> None:
    async def agent(task: Task, toolbox: Toolbox) -> str:
        return await existing(task, toolbox, ClaudeAgentOptions(**options))

    with pytest.raises(MissingToolError, match=f"has tools that no toolkit of the case 'parcel' has: {named}; declare"):
        run(agent)


def test_a_new_agent_may_call_all_emulated_tools_and_nothing_else() -> None:
    seen: list[ClaudeAgentOptions] = []

    async def agent(_: Task, toolbox: Toolbox) -> str:
        async with adapter.emulated(ClaudeAgentOptions(), toolbox) as options:
            seen.append(options)
        return "Done."

    run(agent)
    (options,) = seen
    assert (options.tools, options.allowed_tools, list(options.mcp_servers)) == ([], ["mcp__tools"], ["tools"])
    assert (options.setting_sources, options.strict_mcp_config) == ([], True)


def test_a_forgotten_real_tool_ends_the_session_before_claude_code_starts(offered: list[str]) -> None:
    async def forgetful(task: Task, _: Toolbox) -> str:
        return str([message async for message in query(prompt=str(task), options=doorman)])

    with pytest.raises(MissingToolError, match="the tool 'mcp__desk__Lockers_Open' of Claude Code is not emulated"):
        run(forgetful)
    assert offered == []


def test_options_are_run_with_emulated_tools(offered: list[str]) -> None:
    record = run(doorman)
    assert (lockers(record), record.answer) == (["7", "7", "8"], "Opened.")
    assert set(offered) == {"mcp__desk__Lockers_Open"}
