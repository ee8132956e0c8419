"""Faults of the loopback server as the real SDKs see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from tests.loopback import (
    Fault,
    LoopbackServer,
    Request,
    ScriptError,
    conforming,
    faulty,
    replies,
    together,
)
from tests.loopback.fixtures import Loopback
from tests.loopback.sdk_calls import USER, ask_anthropic, ask_openai, expect_bad_request, with_anthropic, with_openai

ask_either = pytest.mark.parametrize("ask", [ask_openai, ask_anthropic], ids=["openai", "anthropic"])


on_either = pytest.mark.parametrize(
    ("ask", "sdk"), [(ask_openai, openai), (ask_anthropic, anthropic)], ids=["openai", "anthropic"]
)


@ask_either
def test_a_script_that_runs_out_fails_its_test(ask: Callable[..., Any]) -> None:
    server = LoopbackServer(replies([]))
    with pytest.raises(ScriptError, match="LookupError at request 1"), server:
        expect_bad_request(ask, server, match="ran out of replies at request 1")


@on_either
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (404, "NotFoundError"),
        (429, "RateLimitError"),
        (500, "InternalServerError"),
        (529, "InternalServerError"),
    ],
)
def test_an_http_error_raises_the_exception_of_the_sdk(
    loopback: Loopback, ask: Callable[..., Any], sdk: Any, status: int, error: str
) -> None:
    server = loopback(replies([Fault(status=status, message="Not today.", retry_after=0.25, code="my_code")]))
    with pytest.raises(getattr(sdk, error), match=r"Not today\.") as caught:
        ask(server)
    problem = caught.value
    assert (problem.status_code, problem.request_id) == (status, "req_1")
    assert (problem.response.headers["retry-after"], problem.response.headers["retry-after-ms"]) == ("0.25", "250")
    detail = problem.body["error"] if sdk is anthropic else problem.body
    assert detail["message"] == "Not today."
    assert detail["type" if sdk is anthropic else "code"] == "my_code"


@ask_either
def test_the_sdks_retry_transient_errors(loopback: Loopback, ask: Callable[..., Any]) -> None:
    limited = Fault(status=429, retry_after=0.001)
    server = loopback(faulty(replies(["At last."]), {1: limited, 2: limited}))
    assert "At last." in ask(server, retries=2).model_dump_json()
    assert [request.headers["x-stainless-retry-count"] for request in server.requests] == ["0", "1", "2"]


@on_either
@pytest.mark.parametrize("kind", ["drop", "truncate"])
def test_a_broken_connection_is_a_connection_error(
    loopback: Loopback, ask: Callable[..., Any], sdk: Any, kind: Any
) -> None:
    server = loopback(faulty(replies(["Fine."]), {1: Fault(kind)}))
    with pytest.raises(sdk.APIConnectionError):
        ask(server)
    assert "Fine." in ask(server).model_dump_json()


def test_a_stalled_request_ends_when_the_client_gives_up(loopback: Loopback) -> None:
    server = loopback(faulty(conforming(), {1: Fault("stall"), 2: Fault("stall")}))

    async def ask(client: openai.AsyncOpenAI) -> Any:
        turn: Any = USER
        return await client.chat.completions.create(model="m", messages=turn)

    async def message(client: anthropic.AsyncAnthropic) -> Any:
        turn: Any = USER
        return await client.messages.create(model="m", max_tokens=1, messages=turn)

    with pytest.raises(openai.APITimeoutError):
        with_openai(server, ask, timeout=0.05)
    with pytest.raises(anthropic.APITimeoutError):
        with_anthropic(server, message, timeout=0.05)


@on_either
@pytest.mark.parametrize(
    "hold",
    [
        lambda: replies([Fault("stall")]),
        lambda: together(1, replies([Fault("stall")])),
        lambda: together(2, conforming()),
    ],
    ids=["stalled", "stalled later", "held"],
)
def test_waiting_requests_end_when_the_server_stops(ask: Callable[..., Any], sdk: Any, hold: Callable[[], Any]) -> None:
    arrived = asyncio.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        script = hold()

        def scripted_answer(request: Request) -> Any:
            loop.call_soon_threadsafe(arrived.set)
            return script(request)

        with LoopbackServer(scripted_answer) as server:
            waiting = asyncio.create_task(asyncio.to_thread(ask, server))
            await arrived.wait()
        with pytest.raises(sdk.APIConnectionError):
            await waiting

    asyncio.run(main())


@on_either
def test_another_key_or_model_is_refused(loopback: Loopback, ask: Callable[..., Any], sdk: Any) -> None:
    server = loopback(key="right", models=["gpt-y", "claude-x"])
    with pytest.raises(sdk.AuthenticationError, match="API key"):
        ask(server, key="wrong")
    if sdk is openai:
        with pytest.raises(sdk.NotFoundError, match="'gpt-x' does not exist; known: gpt-y, claude-x"):
            ask(server, key="right")
    else:
        assert ask(server, key="right").content[0].text == "Done."
