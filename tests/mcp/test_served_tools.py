"""An agent in another process calls the tools of a case over MCP as one in this process calls the toolbox."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

import pytest

from pytest_toolemu.agents import local_server as server_module
from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.agents.local_server import MAX_MESSAGE, local_server
from pytest_toolemu.agents.mcp import served
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.run import Call, Observation, Run, Trajectory
from pytest_toolemu.core.toolbox import BlockingToolbox, Emulator, Task, Toolbox
from pytest_toolemu.errors import InconclusiveError, ModelError
from tests.adapters.framework_case import CASES, full_marks
from tests.agents.scene import calls, opened, resolved_case, toolbox
from tests.mcp.raw_client import exchange, hang_up_on, post, request, result_of, tool_call

case_name: ContextVar[str] = ContextVar("case_name", default="none")


class HangingEmulator:
    """Never answers. ``reached`` is set when a call has arrived."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def __call__(self, _: Call, __: Trajectory) -> Observation:
        self.reached.set()
        return await asyncio.Future[Observation]()


async def run_served(agent: Any, emulator: Emulator = opened, **limits: Any) -> Run:
    return await run_case(
        RunSpec(resolved_case(), custom_agent(agent, "mine"), emulator, (full_marks,), limits=Limits(**limits))
    )


def serve(action: Callable[[str, Toolbox], Any], **options: Any) -> Toolbox:
    """Perform an action while the tools of a case are served; return the toolbox."""

    async def serving() -> Toolbox:
        box = toolbox(**options)
        async with served(box) as url:
            await action(url, box)
        return box

    return asyncio.run(serving())


def test_calls_are_answered_and_recorded_with_their_errors() -> None:
    async def emulator(_: Call, trajectory: Trajectory) -> Observation:
        if trajectory.steps:
            return Observation(content={"error": "Jammed: it is stuck"}, source="offline")
        return Observation(content={"opened": True, "größe": "L"}, source="offline")

    async def action(url: str, _: Toolbox) -> None:
        first, second = await result_of(url, tool_call("7")), await result_of(url, tool_call("8", "two"))
        assert first == {
            "content": [{"type": "text", "text": '{"opened":true,"größe":"L"}'}],
            "isError": False,
            "structuredContent": {"opened": True, "größe": "L"},
        }
        assert second == {"content": [{"type": "text", "text": '{"error":"Jammed: it is stuck"}'}], "isError": True}

    box = serve(action, emulator=emulator)
    assert calls(box) == [("Lockers_Open", {"locker": "7"}), ("Lockers_Open", {"locker": "8"})]


def test_tools_are_listed_as_the_toolkit_declares_them_without_hints_about_what_is_tested() -> None:
    async def action(url: str, box: Toolbox) -> None:
        (tool,) = (await result_of(url, request("tools/list")))["tools"]
        assert tool == {
            "name": "Lockers_Open",
            "description": box.tools[0].description,
            "inputSchema": box.tools[0].parameters,
        }

    serve(action)


def test_a_call_is_executed_on_the_loop_and_in_the_context_of_its_case() -> None:
    places: list[tuple[str, str]] = []

    async def emulator(_: Call, __: Trajectory) -> Observation:
        places.append((threading.current_thread().name, case_name.get()))
        return Observation(content={"opened": True}, source="offline")

    async def one_case(number: str) -> None:
        case_name.set(number)
        async with served(toolbox(emulator=emulator)) as url:
            await result_of(url, tool_call())

    async def both() -> None:
        await asyncio.gather(one_case("first"), one_case("second"))

    asyncio.run(both())
    assert sorted(places) == [("MainThread", "first"), ("MainThread", "second")]


def test_all_cases_share_one_server_and_each_address_is_unguessable() -> None:
    async def addresses() -> list[str]:
        async with served(toolbox()) as first, served(toolbox()) as second:
            assert local_server() is local_server()
            return [first, second]

    first, second = asyncio.run(addresses())
    (origin, token, end), (other_origin, other_token, _) = (url.rsplit("/", 2) for url in (first, second))
    assert origin == other_origin
    assert origin.startswith("http://127.0.0.1:")
    assert (token != other_token, len(token) >= 20, end) == (True, True, "mcp")


def test_an_address_ends_with_its_case() -> None:
    urls: list[str] = []

    async def action(url: str, _: Toolbox) -> None:
        urls.append(url)

    serve(action)
    status, content = exchange(urls[0], tool_call())
    assert status == 404
    assert content["error"]["message"] == "no case is served at this address, which is valid only until its case ends"


def test_a_plain_function_serves_its_tools_with_a_plain_block() -> None:
    def agent(_: Task, box: BlockingToolbox) -> str:
        with served(box) as url:
            return json.dumps(exchange(url, tool_call())[1]["result"]["structuredContent"])

    run = asyncio.run(run_served(agent))
    assert (run.outcome, run.answer, len(run.steps)) == ("passed", '{"opened": true, "nth": 0}', 1)


def test_many_calls_at_once_are_answered_one_after_the_other() -> None:
    async def action(url: str, _: Toolbox) -> None:
        results = await asyncio.gather(*(result_of(url, tool_call(str(number), number)) for number in range(8)))
        assert sorted(result["structuredContent"]["nth"] for result in results) == list(range(8))

    assert len(calls(serve(action))) == 8


def test_many_cases_at_once_get_their_own_answers() -> None:
    async def agent(_: Task, box: Toolbox) -> str:
        async with served(box) as url:
            number = url.rsplit("/", 2)[1]
            await result_of(url, tool_call(number))
        return number

    async def all_at_once() -> list[Run]:
        return await asyncio.gather(*(run_served(agent) for _ in range(CASES)))

    runs = asyncio.run(all_at_once())
    assert [run.steps[0].call.arguments["locker"] for run in runs] == [run.answer for run in runs]
    assert len({run.answer for run in runs}) == CASES


def test_after_the_step_limit_calls_are_errors_and_an_agent_that_goes_on_is_canceled() -> None:
    answers: list[Any] = []

    async def agent(_: Task, box: Toolbox) -> str:
        async with served(box) as url:
            while True:
                answers.append(await result_of(url, tool_call()))

    run = asyncio.run(run_served(agent, max_steps=2))
    assert (run.stop, len(run.steps), run.outcome) == ("step_limit", 2, "passed")
    assert [answer["isError"] for answer in answers[:3]] == [False, False, True]
    assert "stop here" in answers[2]["content"][0]["text"]


def test_an_error_of_the_emulator_is_not_shown_to_the_agent_and_decides_the_run() -> None:
    answers: list[Any] = []

    async def emulator(_: Call, __: Trajectory) -> Observation:
        raise ModelError("the key sk-123 was refused")

    async def agent(_: Task, box: Toolbox) -> str:
        async with served(box) as url:
            answers.append(await result_of(url, tool_call()))
        return "Opened."

    run = asyncio.run(run_served(agent, emulator))
    assert run.outcome == "broken"
    assert "sk-123" not in json.dumps(answers)
    assert answers[0]["isError"]


def test_a_client_that_hangs_up_makes_the_case_inconclusive() -> None:
    async def running() -> Run:
        emulator = HangingEmulator()

        async def agent(_: Task, box: Toolbox) -> str:
            async with served(box) as url:
                await hang_up_on(url, tool_call(), emulator.reached)
            return "I could not open it."

        return await run_served(agent, emulator)

    run = asyncio.run(running())
    assert run.outcome == "inconclusive"
    (reason,) = run.reasons
    assert "s after its call of Lockers_Open, before the answer" in reason
    assert "raise the timeout of its MCP client for tool calls (Python SDK: read_timeout_seconds" in reason


def test_an_agent_that_goes_on_after_its_client_has_hung_up_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HANG_UP_GRACE", 0.0)

    async def running() -> Run:
        emulator = HangingEmulator()

        async def agent(_: Task, box: Toolbox) -> str:
            async with served(box) as url:
                await hang_up_on(url, tool_call(), emulator.reached)
                await asyncio.Future[None]()
            return "never reached"

        return await run_served(agent, emulator)

    run = asyncio.run(running())
    assert run.outcome == "inconclusive"
    assert run.reasons[0].startswith("the MCP client of the agent hung up ")


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_message_that_is_too_long_makes_the_case_inconclusive(is_chunked: bool) -> None:
    """Its tool call would be lost without a trace."""

    async def agent(_: Task, box: Toolbox) -> str:
        async with served(box) as url:
            address = urlsplit(url)
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {MAX_MESSAGE + 1}"
            writer.write(f"POST {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\n{length}\r\n\r\n".encode())
            if is_chunked:
                writer.write(b"%x\r\n%s\r\n" % (MAX_MESSAGE + 1, b" " * (MAX_MESSAGE + 1)))
            assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
            writer.close()
        return "I could not open it."

    run = asyncio.run(run_served(agent))
    assert (run.outcome, run.answer) == ("inconclusive", "I could not open it.")
    assert run.reasons == (
        f"the MCP client of the agent sent a message of more than {MAX_MESSAGE:,} bytes, which cannot be read, so a tool "
        "call may be missing; let the agent send shorter arguments",
    )


def test_a_client_that_cancels_its_request_makes_the_case_inconclusive() -> None:
    async def running() -> None:
        emulator = HangingEmulator()
        async with served(toolbox(emulator=emulator)) as url:
            call = asyncio.create_task(result_of(url, tool_call(request_id="mine")))
            await emulator.reached.wait()
            other = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "other"}}
            assert await post(url, other) == (202, None)
            assert not call.done()
            assert await post(url, other | {"params": {"requestId": "mine"}}) == (202, None)
            assert (await call)["isError"]

    with pytest.raises(InconclusiveError, match="the MCP client of the agent canceled the request"):
        asyncio.run(running())


def test_an_agent_that_ends_during_its_call_makes_the_case_inconclusive() -> None:
    """Some clients that give up keep the connection open, so this is the only sign of a time-out."""

    async def running() -> None:
        emulator = HangingEmulator()
        async with served(toolbox(emulator=emulator)) as url:
            call = asyncio.create_task(result_of(url, tool_call()))
            await emulator.reached.wait()
        assert (await call)["isError"]

    with pytest.raises(InconclusiveError, match=r"the agent ended its turn .* after its call of Lockers_Open"):
        asyncio.run(running())


def test_the_crash_of_an_agent_during_its_call_is_not_taken_for_a_timeout() -> None:
    async def running() -> Run:
        emulator = HangingEmulator()

        async def agent(_: Task, box: Toolbox) -> str:
            async with served(box) as url:
                await hang_up_on(url, tool_call(), emulator.reached)
                raise RuntimeError("exit status 3")

        return await run_served(agent, emulator)

    run = asyncio.run(running())
    assert (run.outcome, run.reasons) == ("broken", ("RuntimeError: exit status 3",))
