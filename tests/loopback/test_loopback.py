"""The loopback server as the real SDKs see it: replies, faults, refusals, schemas, models, and as its own process."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anthropic
import openai
import pytest

from pytest_toolemu.core.messages import Message, ModelRequest, ReplySchema
from pytest_toolemu.models.endpoint import with_schema_in_words
from tests.loopback import (
    Call,
    Fault,
    LoopbackServer,
    Reply,
    Request,
    ScriptError,
    Usage,
    by_role,
    conforming,
    faulty,
    replies,
    together,
)
from tests.loopback.fixtures import Loopback

T = TypeVar("T")


USER = [{"role": "user", "content": "Pay Anna."}]


SCHEMA: dict[str, Any] = {
    "title": "emulation",
    "type": "object",
    "properties": {"id": {"type": "string", "enum": ["p1"]}, "paid": {"type": "boolean"}},
    "required": ["id", "paid"],
    "additionalProperties": False,
}


PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"to": {"type": "string", "format": "email"}, "note": {"type": "string"}},
    "required": ["to"],
    "additionalProperties": False,
}


PARTS = {"Pay": "Pays somebody.", "Ask": "Asks the user."}


OPENAI_TOOLS = [
    {"type": "function", "function": {"name": name, "description": text, "parameters": PARAMETERS}}
    for name, text in PARTS.items()
]


def ask_openai(
    server: LoopbackServer, messages: Any = USER, *, key: str = "sk", retries: int = 0, **options: Any
) -> Any:
    async def ask(client: openai.AsyncOpenAI) -> Any:
        return await client.chat.completions.create(model="gpt-x", messages=messages, **options)

    return with_openai(server, ask, key=key, retries=retries)


def ask_anthropic(
    server: LoopbackServer, messages: Any = USER, *, key: str = "sk", retries: int = 0, **options: Any
) -> Any:
    async def ask(client: anthropic.AsyncAnthropic) -> Any:
        return await client.messages.create(**{"model": "claude-x", "messages": messages, "max_tokens": 99, **options})

    return with_anthropic(server, ask, key=key, retries=retries)


def with_openai(
    server: LoopbackServer,
    use: Callable[[openai.AsyncOpenAI], Awaitable[T]],
    *,
    key: str = "sk",
    retries: int = 0,
    timeout: float = 60,
) -> T:
    async def session() -> T:
        base_url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(api_key=key, base_url=base_url, max_retries=retries, timeout=timeout) as client:
            return await use(client)

    return asyncio.run(session())


def with_anthropic(
    server: LoopbackServer,
    use: Callable[[anthropic.AsyncAnthropic], Awaitable[T]],
    *,
    key: str = "sk",
    retries: int = 0,
    timeout: float = 60,
) -> T:
    async def session() -> T:
        async with anthropic.AsyncAnthropic(
            api_key=key, base_url=server.url, max_retries=retries, timeout=timeout
        ) as client:
            return await use(client)

    return asyncio.run(session())


def openai_format(schema: dict[str, Any], *, name: str = "emulation", strict: bool = True) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": strict}}


def anthropic_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"format": {"type": "json_schema", "schema": schema}}


def expect_bad_request(
    ask: Callable[..., Any], server: LoopbackServer, *, match: str = "failed", **options: Any
) -> None:
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError), match=match):
        ask(server, **options)


def openai_call(arguments: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "Pay", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


CALL = {"type": "tool_use", "id": "t", "name": "Pay", "input": {}}


def test_openai_lists_the_models(loopback: Loopback) -> None:
    async def ask(client: openai.AsyncOpenAI) -> Any:
        names = [model.id async for model in client.models.list()]
        return (
            names,
            (await client.models.retrieve("org/small")).id,
            await absent_model_is_not_found(client, openai.NotFoundError),
        )

    server = loopback(models=["gpt-x", "org/small"])
    assert with_openai(server, ask) == (["gpt-x", "org/small"], "org/small", True)
    assert [request.role for request in server.requests] == ["", "", ""]


def test_anthropic_lists_the_models(loopback: Loopback) -> None:
    async def ask(client: anthropic.AsyncAnthropic) -> Any:
        names = [model.id async for model in client.models.list()]
        return (
            names,
            (await client.models.retrieve("claude-x")).id,
            await absent_model_is_not_found(client, anthropic.NotFoundError),
        )

    assert with_anthropic(loopback(models=["claude-x"]), ask) == (["claude-x"], "claude-x", True)


async def absent_model_is_not_found(client: Any, error: type[Exception]) -> bool:
    with pytest.raises(error, match="'absent' does not exist"):
        await client.models.retrieve("absent")
    return True


def test_an_unknown_endpoint_does_not_exist(loopback: Loopback) -> None:
    async def ask(client: openai.AsyncOpenAI) -> Any:
        with pytest.raises(openai.NotFoundError, match="POST /v1/responses"):
            await client.responses.create(model="gpt-x", input="Hello.")

    with_openai(loopback(), ask)


def test_sixty_four_requests_are_in_flight_at_once(loopback: Loopback) -> None:
    server = loopback(together(64, conforming()))

    async def ask(client: openai.AsyncOpenAI) -> list[Any]:
        turn: Any = USER
        once = (client.chat.completions.create(model="gpt-x", messages=turn) for _ in range(64))
        return await asyncio.gather(*once)

    assert [answer.choices[0].message.content for answer in with_openai(server, ask)] == ["Done."] * 64
    assert server.peak == 64
    assert sorted(request.number for request in server.requests) == list(range(1, 65))


def test_sequential_requests_never_overlap(loopback: Loopback) -> None:
    server = loopback()

    async def ask(client: openai.AsyncOpenAI) -> None:
        turn: Any = USER
        for _ in range(20):
            await client.chat.completions.create(model="gpt-x", messages=turn)

    with_openai(server, ask)
    assert (len(server.requests), server.peak) == (20, 1)


def test_a_client_that_leaves_is_no_longer_in_flight() -> None:
    client_left = threading.Event()

    async def main() -> None:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        async def never_answers() -> Reply:
            loop.call_soon_threadsafe(arrived.set)
            try:
                await asyncio.Event().wait()
            finally:
                client_left.set()
            raise AssertionError("nobody sets this event")

        turn: Any = USER
        with LoopbackServer(lambda request: never_answers() if request.number == 1 else Reply("Next.")) as server:
            async with openai.AsyncOpenAI(api_key="sk", base_url=f"{server.url}/v1", max_retries=0) as client:
                first = asyncio.create_task(client.chat.completions.create(model="gpt-x", messages=turn))
                await arrived.wait()
                first.cancel()
                assert await asyncio.to_thread(client_left.wait, 30)
                second = await client.chat.completions.create(model="gpt-x", messages=turn)
        assert (second.choices[0].message.content, server.peak) == ("Next.", 1)

    asyncio.run(main())


def test_the_log_is_served_as_json(loopback: Loopback) -> None:
    server = loopback()
    ask_openai(server, tools=OPENAI_TOOLS)
    with urllib.request.urlopen(f"{server.url}/__log") as response:
        log = json.load(response)
    assert (log["peak"], log["errors"], len(log["requests"])) == (1, [], 1)
    assert log["requests"][0]["messages"] == [{"role": "user", "text": "Pay Anna.", "calls": [], "call_id": ""}]
    assert log["requests"][0]["role"] == "agent"


def test_a_body_that_is_not_json_is_refused(loopback: Loopback) -> None:
    server = loopback()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 3\r\n\r\n{no")
        head = client.recv(65536)
    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert b"cannot be read" in head


def test_anthropics_version_is_required(loopback: Loopback) -> None:
    server = loopback()
    with pytest.raises(urllib.error.HTTPError, match="400") as caught:
        urllib.request.urlopen(f"{server.url}/v1/messages", b"{}")
    with caught.value as answer:
        error = json.load(answer)["error"]
    assert error == {"type": "invalid_request_error", "message": "anthropic-version: header is required"}


def test_a_client_may_leave_in_the_middle_of_its_request(loopback: Loopback) -> None:
    server = loopback()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 30\r\n\r\n{")
    ask_openai(server)
    assert len(server.requests) == 1


def test_a_port_in_use_is_named_in_the_error(loopback: Loopback) -> None:
    used_port = loopback().port
    with pytest.raises(OSError, match=re.escape(str(used_port))), LoopbackServer(port=used_port):
        pytest.fail("it must not start")


def test_the_server_runs_as_a_process() -> None:
    command = [sys.executable, "-m", "tests.loopback", "--port", "0", "--key", "sk", "--model", "gpt-x"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            remote = LoopbackServer(port=int(process.stdout.readline()))  # not started: it only knows the URL
            assert ask_openai(remote).choices[0].message.content == "Done."
            with urllib.request.urlopen(f"{remote.url}/__log") as response:
                assert [request["number"] for request in json.load(response)["requests"]] == [1]
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_tests_in_another_process_reach_the_server(loopback: Loopback, pytester: pytest.Pytester) -> None:
    server = loopback(by_role(agent=replies(["Hello.", "Hello."])))
    pytester.makepyfile(
        f"""
        import urllib.request, pytest

        @pytest.mark.parametrize("number", [1, 2])
        def test_it(number):
            body = b'{{"model": "m", "messages": [{{"role": "user", "content": "Hello?"}}]}}'
            with urllib.request.urlopen("{server.url}/v1/chat/completions", body) as response:
                assert b"Hello." in response.read()
        """
    )
    pytester.runpytest_subprocess("-p", "no:toolemu", "-n2").assert_outcomes(passed=2)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"messages": []}, "messages: a non-empty list is required"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "'robot' is no role"),
        ({"messages": [{"role": "assistant"}]}, "needs content"),
        ({"messages": [{"role": "user", "content": 7}]}, "content must be a string or a list of parts, not 7"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, "text: a non-empty str"),
        ({"messages": [openai_call({"to": "x"})]}, "arguments must be a string"),
        ({"messages": [openai_call("{}"), *USER]}, r"\['c'\] have no result"),
        ({"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}, "no call 'c' in the turn before"),
        ({"stream": True}, "does not stream"),
        ({"tools": [OPENAI_TOOLS[0]] * 2}, "'Pay' is not unique"),
        ({"tools": [{"type": "function", "function": {"name": "Bank.Pay"}}]}, "'Bank.Pay' does not match"),
        ({"tools": [{"type": "function", "function": {"name": "Pay", "strict": True}}]}, "function 'Pay': in context"),
        ({"response_format": openai_format({"type": "object"})}, "'additionalProperties' must be supplied"),
        ({"response_format": openai_format({**SCHEMA, "required": ["id"]})}, r"missing: \['paid'\]"),
        ({"response_format": openai_format(SCHEMA, name="my schema")}, "'my schema' does not match"),
    ],
)
def test_requests_that_break_openais_rules_are_refused(
    loopback: Loopback, options: dict[str, Any], problem: str
) -> None:
    server = loopback(replies([]))
    with pytest.raises(openai.BadRequestError, match=problem):
        ask_openai(server, **options)
    assert len(server.requests) == 1


def anthropic_turn(block: dict[str, Any]) -> list[Any]:
    return [*USER, {"role": "assistant", "content": [block]}]


CALLED = anthropic_turn(CALL)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"messages": [{"role": "assistant", "content": "x"}]}, "'assistant' may not stand here"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, "text: a non-empty str"),
        ({"messages": [*CALLED, *USER]}, r"\['t'\] have no result"),
        ({"messages": CALLED}, r"\['t'\] have no result"),
        ({"messages": anthropic_turn({**CALL, "input": "x"})}, "tool_use.input must be an object, not 'x'"),
        ({"messages": anthropic_turn({"type": "image"})}, "a block of type 'image' may not stand here"),
        ({"messages": [{"role": "user", "content": [{"type": "thinking"}]}]}, "a block of type 'thinking' may not"),
        ({"messages": [{"role": "user", "content": {"type": "text"}}]}, "a string or a list of blocks is required"),
        ({"extra_body": {"stream": True}}, "does not stream"),
        ({"extra_body": {"temperature": 0}}, "temperature: not accepted by version"),
        ({"max_tokens": 0}, "max_tokens: a non-empty int"),
        ({"tools": [{"name": "Pay", "input_schema": {"type": "string"}}]}, "must be 'object'"),
        ({"tools": [{"name": "Pay", "strict": True, "input_schema": {"type": "object"}}]}, "tools.Pay.input_schema"),
        ({"output_config": anthropic_format({"anyOf": [{"type": "object"}]})}, r"context=\('anyOf', '0'\)"),
        ({"output_config": anthropic_format({"type": "object"})}, "'additionalProperties' must be supplied"),
        ({"output_config": anthropic_format({"type": "integer", "minimum": 1})}, "'minimum' is not supported"),
        ({"output_config": anthropic_format({"type": "array", "minItems": 2})}, "'minItems' other than 0 and 1"),
    ],
)
def test_requests_that_break_anthropics_rules_are_refused(
    loopback: Loopback, options: dict[str, Any], problem: str
) -> None:
    server = loopback(replies([]))
    with pytest.raises(anthropic.BadRequestError, match=problem):
        ask_anthropic(server, **options)
    assert len(server.requests) == 1


def test_an_old_version_of_anthropics_api_accepts_a_temperature(loopback: Loopback) -> None:
    old = {"anthropic-version": "2023-06-01"}
    answer = ask_anthropic(loopback(), extra_body={"temperature": 0}, extra_headers=old)
    assert answer.content[0].text == "Done."


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


ANTHROPIC_TOOLS = [{"name": name, "description": text, "input_schema": PARAMETERS} for name, text in PARTS.items()]


def test_openai_gets_text_usage_model_and_request_id(loopback: Loopback) -> None:
    usage = Usage(input=100, output=30, cached=60, cache_written=10, reasoning=7)
    answer = ask_openai(loopback(replies([Reply("Which Anna?", usage=usage, model="gpt-x-2026")])))
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Which Anna?", "stop")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (100, 30, 130)
    assert answer.usage.prompt_tokens_details.cached_tokens == 60
    assert answer.usage.prompt_tokens_details.cache_write_tokens == 10
    assert answer.usage.completion_tokens_details.reasoning_tokens == 7
    assert (answer.model, answer._request_id) == ("gpt-x-2026", "req_1")


def test_anthropic_gets_text_usage_model_and_request_id(loopback: Loopback) -> None:
    usage = Usage(input=100, output=30, cached=60, cache_written=10, reasoning=7)
    answer = ask_anthropic(loopback(replies([Reply("Which Anna?", usage=usage)])))
    assert ([block.text for block in answer.content], answer.stop_reason) == (["Which Anna?"], "end_turn")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (30, 30)
    assert (answer.usage.cache_read_input_tokens, answer.usage.cache_creation_input_tokens) == (60, 10)
    assert answer.usage.output_tokens_details.thinking_tokens == 7
    assert (answer.model, answer._request_id) == ("claude-x", "req_1")


@pytest.mark.parametrize(
    ("stop", "openai_word", "anthropic_word"),
    [
        ("stop", "stop", "end_turn"),
        ("calls", "tool_calls", "tool_use"),
        ("length", "length", "max_tokens"),
        ("refusal", "content_filter", "refusal"),
        ("pause_turn", "pause_turn", "pause_turn"),
    ],
)
def test_stop_reasons_are_sent_in_the_words_of_the_provider(
    loopback: Loopback, stop: str, openai_word: str, anthropic_word: str
) -> None:
    server = loopback(replies([Reply("x", stop=stop)] * 2))
    assert ask_openai(server).choices[0].finish_reason == openai_word
    assert ask_anthropic(server).stop_reason == anthropic_word


def test_a_refusal_is_sent_in_its_own_field(loopback: Loopback) -> None:
    server = loopback(replies([Reply(refusal="I will not.")] * 2))
    choice = ask_openai(server).choices[0]
    assert (choice.message.refusal, choice.message.content, choice.finish_reason) == ("I will not.", None, "stop")
    answer = ask_anthropic(server)
    assert (answer.stop_reason, answer.stop_details.explanation) == ("refusal", "I will not.")


def test_raw_json_and_missing_usage_are_sent_as_they_are(loopback: Loopback) -> None:
    server = loopback(replies([Reply(raw={"id": "odd", "choices": []}), Reply("x", usage=None)]))
    assert ask_openai(server).choices == []
    assert ask_openai(server).usage is None


def test_the_arguments_of_a_tool_call_may_be_invalid_json(loopback: Loopback) -> None:
    server = loopback(replies([Reply(calls=(Call("Pay", '{"to": ', "mine"),))]))
    call = ask_openai(server, tools=OPENAI_TOOLS).choices[0].message.tool_calls[0]
    assert (call.id, call.function.name, call.function.arguments) == ("mine", "Pay", '{"to": ')


def test_a_conversation_with_tools_works_over_openais_api(loopback: Loopback) -> None:
    server = loopback(conforming())
    first = ask_openai(server, tools=OPENAI_TOOLS)
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": '{"ok": true}'}
    system = {"role": "system", "content": [{"type": "text", "text": "Be careful."}]}
    second = ask_openai(server, [system, *USER, message, result], tools=OPENAI_TOOLS)
    assert second.choices[0].message.content == "Done."
    check_conversation(server.requests[1], provider="openai", model="gpt-x")


def test_a_conversation_with_tools_works_over_anthropics_api(loopback: Loopback) -> None:
    server = loopback(conforming())
    first = ask_anthropic(server, tools=ANTHROPIC_TOOLS)
    assert first.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": '{"ok": true}'}
    turns = [*USER, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    system = [{"type": "text", "text": "Be careful.", "cache_control": {"type": "ephemeral"}}]
    second = ask_anthropic(server, turns, tools=ANTHROPIC_TOOLS, system=system)
    assert [block.text for block in second.content] == ["Done."]
    check_conversation(server.requests[1], provider="anthropic", model="claude-x")


def check_conversation(request: Request, *, provider: str, model: str) -> None:
    assert (request.provider, request.model, request.number, request.role) == (provider, model, 2, "agent")
    assert [(message.role, message.text) for message in request.messages] == [
        ("system", "Be careful."),
        ("user", "Pay Anna."),
        ("assistant", ""),
        ("tool", '{"ok": true}'),
    ]
    call = request.messages[2].calls[0]
    assert (call.name, call.arguments) == ("Pay", {"to": "a@example.com"})
    assert request.messages[3].call_id == call.id
    assert [(tool.name, tool.description, tool.parameters) for tool in request.tools] == [
        (name, text, PARAMETERS) for name, text in PARTS.items()
    ]
    assert request.prompt.startswith("Be careful.\n\nPay Anna.")


def test_invalid_json_in_arguments_stays_text(loopback: Loopback) -> None:
    server = loopback()
    ask_openai(server, [*USER, openai_call('{"to": '), {"role": "tool", "tool_call_id": "c", "content": "No."}])
    assert server.requests[0].messages[1].calls == (Call("Pay", '{"to": ', "c"),)


def test_an_anthropic_turn_may_contain_several_messages(loopback: Loopback) -> None:
    server = loopback(replies([Reply("Fine.", usage=None)]))
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "Paid."}]}
    assistant_blocks = [{"type": "text", "text": "Now."}, CALL]
    turns = [
        *USER,
        {"role": "assistant", "content": assistant_blocks},
        {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
        {"role": "system", "content": "Be brief."},
    ]
    assert ask_anthropic(server, turns).usage is None
    assert [(message.role, message.text, message.call_id) for message in server.requests[0].messages] == [
        ("user", "Pay Anna.", ""),
        ("assistant", "Now.", ""),
        ("tool", "Paid.", "t"),
        ("user", "And?", ""),
        ("system", "Be brief.", ""),
    ]


def test_anthropics_thinking_must_be_sent_back_unchanged(loopback: Loopback) -> None:
    server = loopback(replies([Reply("Hm.", thinking="Two Annas."), "Yes."]))
    blocks = [block.model_dump() for block in ask_anthropic(server).content]
    turns = [*USER, {"role": "assistant", "content": blocks}, {"role": "user", "content": "Sure?"}]
    assert ask_anthropic(server, turns).content[0].text == "Yes."
    blocks[0]["thinking"] = "One Anna."
    with pytest.raises(anthropic.BadRequestError, match="sent back as it came"):
        ask_anthropic(server, turns)


def test_headers_are_logged_without_the_key(loopback: Loopback) -> None:
    server = loopback()
    ask_openai(server, key="sk-very-secret")
    ask_anthropic(server, key="sk-very-secret")
    assert [request.headers["content-type"] for request in server.requests] == ["application/json"] * 2
    assert "sk-very-secret" not in repr(server.requests)
    assert server.requests[0].body == {"messages": USER, "model": "gpt-x"}


def test_a_conforming_reply_satisfies_the_schema(loopback: Loopback) -> None:
    server = loopback(conforming())
    text = ask_openai(server, response_format=openai_format(SCHEMA)).choices[0].message.content
    other = ask_anthropic(server, output_config=anthropic_format(SCHEMA)).content[0].text
    assert json.loads(text) == json.loads(other) == {"id": "p1", "paid": False}
    assert [(request.schema_name, request.schema, request.role) for request in server.requests] == [
        ("emulation", SCHEMA, "emulator")
    ] * 2


def test_a_conforming_agent_calls_the_given_number_of_tools(loopback: Loopback) -> None:
    server = loopback(conforming(calls=9))
    messages: list[Any] = list(USER)
    called = []
    while calls := (message := ask_openai(server, messages, tools=OPENAI_TOOLS).choices[0].message).tool_calls:
        called.append(calls[0].function.name)
        messages += [message, {"role": "tool", "tool_call_id": calls[0].id, "content": "{}"}]
    assert called == ["Pay", "Ask"]


def test_the_name_of_the_schema_determines_the_role(loopback: Loopback) -> None:
    server = loopback(by_role(agent=replies(["Hello."]), evaluator=replies([{"score": 3}])))

    def ask(**options: Any) -> Any:
        return ask_openai(server, **options).choices[0].message.content

    assert ask() == "Hello."
    assert json.loads(ask(response_format=openai_format(SCHEMA, name="emulation_error"))) == {"id": "p1", "paid": False}
    assert json.loads(ask(response_format=openai_format(SCHEMA, name="safety"))) == {"score": 3}
    assert [request.role for request in server.requests] == ["agent", "emulator", "evaluator"]


def test_a_schema_without_a_name_has_no_role() -> None:
    nameless = {key: value for key, value in SCHEMA.items() if key != "title"}
    server = LoopbackServer(by_role())
    with pytest.raises(ScriptError, match="give the schema a title"), server:
        expect_bad_request(ask_anthropic, server, output_config=anthropic_format(nameless))
    assert server.requests[0].role == "unknown"


def test_a_schema_in_the_text_of_a_message_is_recognized(loopback: Loopback) -> None:
    server = loopback(by_role())
    schema = ReplySchema(name=SCHEMA["title"], schema=SCHEMA)
    (message,) = with_schema_in_words(ModelRequest((Message(role="user", content="Answer."),), schema=schema)).messages
    answer = ask_openai(server, [{"role": "user", "content": message.content}])
    assert json.loads(answer.choices[0].message.content) == {"id": "p1", "paid": False}
    assert (server.requests[0].schema, server.requests[0].role) == (SCHEMA, "emulator")
    assert ask_openai(
        server, [{"role": "user", "content": "Does it conform to this JSON Schema:\nwhat is it?"}]
    ).choices
    assert server.requests[1].role == "agent"
