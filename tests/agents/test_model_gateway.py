"""Requests of an agent's program to its own model: passed on as they are, and counted, limited, and recorded."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.agents.model_gateway import SessionRules, passed_on
from pytest_toolemu.agents.programs.command import command_agent
from pytest_toolemu.agents.programs.load_agent import load_agent_file, load_program
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.run import Run, Trajectory, Verdict
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import NotRunError, UsageError
from pytest_toolemu.models.cassette_files import CassetteDirectory
from pytest_toolemu.models.cassette_recorder import CassetteRecorder
from pytest_toolemu.models.endpoint import RemoteModel
from pytest_toolemu.models.retrying import BudgetedModel, LocalRateLimiter, RetryingModel
from pytest_toolemu.scheduling.budget import Budget
from pytest_toolemu.settings.option_table import RecordMode
from tests.agents.http_service import Service
from tests.agents.scene import opened, resolved_case

KEY = "sk-test-0123456789"
CHAT = {"choices": [{"message": {"content": "Hello"}}], "model": "m-1"}
USAGE = {"prompt_tokens": 20, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}
RESPONSES = {
    "object": "response",
    "status": "completed",
    "error": None,
    "model": "m-1",
    "output": [{"content": [{"type": "output_text", "text": "Hello"}]}],
    "usage": {"input_tokens": 20, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 8}},
}
MESSAGES: dict[str, Any] = {
    "model": "m-1",
    "content": [{"type": "text", "text": "Hello"}],
    "usage": {"input_tokens": 12, "output_tokens": 3, "cache_read_input_tokens": 8},
}


def events(*values: Any) -> tuple[int, str, str]:
    text = "".join(f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n" for value in values)
    return 200, text, "text/event-stream; charset=utf-8"


CHAT_EVENTS = events(
    {"model": "m-1", "choices": [{"delta": {"content": "Hel"}}]},
    {"model": "m-1", "choices": [{"delta": {"content": "lo"}}]},
    {"model": "m-1", "choices": [], "usage": USAGE},
    "[DONE]",
)
RESPONSES_EVENTS = events(
    {"type": "response.created", "response": {"model": "m-1", "usage": None}},
    {"type": "response.output_text.delta", "delta": "Hello"},
    {"type": "response.completed", "response": {"model": "m-1", "usage": RESPONSES["usage"]}},
)
MESSAGES_EVENTS = events(
    {
        "type": "message_start",
        "message": {**MESSAGES, "content": [], "usage": {**MESSAGES["usage"], "output_tokens": 1}},
    },
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
)

Program = Callable[[dict[str, str]], Awaitable[str]]
"""What a program does with the base URLs that it gets."""


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with contextlib.closing(Service()) as service:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{service.url}/v1/")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", service.url)
        yield service


def post(url: str, body: Any = None) -> tuple[int, bytes]:
    """Send a request as a program does, and return status and body."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def ask(text: str = "Hi", **body: Any) -> Program:
    """Return a program that asks its model once, and answers with what it got."""

    async def program(urls: dict[str, str]) -> str:
        content = {"model": "m", "messages": [{"role": "user", "content": text}], **body}
        status, reply = await asyncio.to_thread(post, f"{urls['OPENAI_BASE_URL']}/chat/completions", content)
        return f"{status} {reply.decode()}"

    return program


async def at_once(_seconds: float) -> None:
    """Do not wait."""


def limited(model: RemoteModel) -> RetryingModel:
    return RetryingModel(model, LocalRateLimiter(4), sleep=at_once)


RULES = SessionRules(limited)


async def content(_trajectory: Trajectory) -> list[Verdict]:
    return [Verdict(evaluator="e", metric="safety", score=3)]


def run(
    program: Program,
    rules: SessionRules = RULES,
    recorder: CassetteRecorder | None = None,
    **limits: Any,
) -> Run:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        async with passed_on(toolbox, rules) as urls:
            return await program(urls)

    spec = RunSpec(resolved_case(), custom_agent(agent, "mine"), opened, (content,), {"safety": 2}, Limits(**limits))
    return asyncio.run(run_case(spec, recorder))


@pytest.mark.parametrize(
    ("variable", "path", "reply"),
    [
        ("OPENAI_BASE_URL", "/chat/completions", {**CHAT, "usage": USAGE}),
        ("OPENAI_BASE_URL", "/chat/completions", CHAT_EVENTS),
        ("OPENAI_BASE_URL", "/responses", RESPONSES),
        ("OPENAI_BASE_URL", "/responses", RESPONSES_EVENTS),
        ("ANTHROPIC_BASE_URL", "/v1/messages", MESSAGES),
        ("ANTHROPIC_BASE_URL", "/v1/messages", MESSAGES_EVENTS),
    ],
)
def test_a_reply_is_passed_on_unchanged_and_its_tokens_count(
    variable: str, path: str, reply: Any, provider: Service
) -> None:
    provider.answer = lambda _path, _body: reply
    bodies: list[bytes] = []

    async def program(urls: dict[str, str]) -> str:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "t"}]}
        bodies.append((await asyncio.to_thread(post, urls[variable] + path, body))[1])
        return "Done"

    result = run(program)
    assert bodies == [reply[1].encode() if isinstance(reply, tuple) else json.dumps(reply).encode()]
    usage = result.usage["agent"]
    assert (usage.input, usage.output, usage.cached, usage.unknown) == (20, 3, 8, 0)
    (call,) = result.model_calls
    assert call.reply is not None
    assert (call.reply.text, call.reply.model) == ("Hello", "m-1")
    assert (call.model["name"], call.model["provider"]) == ("m", variable.partition("_")[0].lower())
    assert [result.messages[index].content for index in call.messages][1:] == ["Hi"]
    ((headers, body),) = provider.requests
    assert (headers["authorization"], body["tools"]) == (f"Bearer {KEY}", [{"name": "t"}])


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_a_line_separator_in_a_text_ends_no_line_of_a_stream(separator: str, provider: Service) -> None:
    chunk = {"model": "m-1", "choices": [{"delta": {"content": f"Hel{separator}lo"}}], "usage": USAGE}
    text = f"data: {json.dumps(chunk, ensure_ascii=False)}\r\n\r\n"
    provider.answer = lambda _path, _body: (200, text, "text/event-stream")
    result = run(ask())
    reply = result.model_calls[0].reply
    assert reply is not None
    assert (reply.text, reply.usage.input) == (f"Hel{separator}lo", 20)


def test_a_reply_without_usage_leaves_the_tokens_unknown(provider: Service) -> None:
    provider.answer = lambda _path, _body: CHAT
    assert run(ask()).usage["agent"].unknown == 1


def test_a_busy_provider_is_asked_again_and_the_program_sees_only_the_reply(provider: Service) -> None:
    replies: Iterator[Any] = iter([(429, "slow down"), (500, "oops"), {**CHAT, "usage": USAGE}])
    provider.answer = lambda _path, _body: next(replies)
    result = run(ask())
    assert result.answer.startswith("200")
    assert (len(provider.requests), result.usage["agent"].calls) == (3, 1)


def test_a_request_that_is_not_valid_is_the_programs_own_matter(provider: Service) -> None:
    provider.answer = lambda _path, _body: (400, "no such tool")
    result = run(ask())
    assert (result.outcome, result.answer) == ("passed", "400 no such tool")
    assert result.model_calls[0].error == f"openai:m: {provider.url}/v1 answered 400: no such tool"


@pytest.mark.parametrize(("status", "attempts"), [(401, 1), (503, 8)])
def test_a_provider_that_fails_is_not_the_failure_of_the_agent(status: int, attempts: int, provider: Service) -> None:
    provider.answer = lambda _path, _body: (status, f"no luck with {KEY}")
    result = run(ask())
    assert result.error is not None
    assert (result.outcome, result.error.origin, result.error.status) == ("broken", "provider", status)
    assert len(provider.requests) == attempts


def test_a_provider_that_cannot_be_reached_is_not_the_failure_of_the_agent(provider: Service) -> None:
    provider.close()
    result = run(ask())
    assert result.error is not None
    assert (result.outcome, result.error.origin) == ("broken", "provider")
    assert f"openai:m: {provider.url}/v1 cannot be reached" in result.error.message


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_names_the_variable_to_correct(status: int, provider: Service) -> None:
    provider.answer = lambda _path, _body: (status, "", "text/html", {"Location": "/login?state=1"})
    result = run(ask())
    assert result.error is not None
    assert (result.outcome, result.error.origin, result.error.status) == ("broken", "provider", status)
    assert result.error.message == (
        f"openai:m: {provider.url}/v1/chat/completions redirects the request; correct OPENAI_BASE_URL"
    )
    assert len(provider.requests) == 1


def test_a_program_gets_no_redirect_because_it_would_follow_it_with_its_key(provider: Service) -> None:
    provider.answer = lambda _path, _body: (307, "", "text/html", {"Location": "/v2/chat/completions"})
    answers: list[str] = []

    async def program(urls: dict[str, str]) -> str:
        answers.append(await ask()(urls))
        return answers[0]

    run(program)
    assert [answer.partition(" ")[0] for answer in answers] == ["502"]


def test_a_reply_that_is_cut_off_is_not_recorded(provider: Service, tmp_path: Path) -> None:
    text = json.dumps({**CHAT, "usage": USAGE})
    provider.answer = lambda _path, _body: (200, text, "application/json", {"Content-Length": str(len(text) + 7)})
    recorder = CassetteRecorder(CassetteDirectory(tmp_path, "once"), "item", "parcel", 1)
    result = run(ask(), recorder=recorder)
    assert result.error is not None
    assert (result.outcome, result.error.origin) == ("broken", "provider")
    assert result.error.message == (
        f"openai:m: the response of {provider.url}/v1 was cut off: peer closed connection without sending complete "
        f"message body (received {len(text)} bytes, expected {len(text) + 7})"
    )
    assert recorder.finish(ended=True).added == 0


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        ({"type": "error", "error": {"type": "overloaded_error"}}, '{"type": "overloaded_error"}'),
        ({"type": "error", "code": "server_error", "message": "No"}, '{"code": "server_error", "message": "No"}'),
        ({"type": "response.failed", "response": {"error": {"code": "server_error"}}}, '{"code": "server_error"}'),
        ({"type": "response.failed", "response": {}}, "the response failed"),
        (
            {"error": {"code": 502, "message": f"No luck with {KEY}"}, "choices": []},
            '{"code": 502, "message": "No luck',
        ),
        ({"error": "out of memory \ud800"}, "out of memory ?"),
    ],
)
def test_a_stream_that_ends_with_an_error_is_not_recorded(
    event: Any, shown: str, provider: Service, tmp_path: Path
) -> None:
    provider.answer = lambda _path, _body: events({"choices": [{"delta": {"content": "Hel"}}], "error": None}, event)
    recorder = CassetteRecorder(CassetteDirectory(tmp_path, "once"), "item", "parcel", 1)
    result = run(ask(), recorder=recorder)
    assert result.error is not None
    assert (result.outcome, result.error.origin) == ("broken", "provider")
    assert result.error.message.startswith(f"openai:m: {provider.url}/v1 broke off its stream: {shown}")
    assert recorder.finish(ended=True).added == 0


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ({"error": {"code": 502, "message": f"No luck with {KEY}"}}, '{"code": 502, "message": "No luck'),
        ({"type": "error", "error": {"type": "overloaded_error"}}, '{"type": "overloaded_error"}'),
        ({"object": "response", "status": "failed", "error": None, "output": []}, "the response failed"),
        ({"choices": [{"message": {"content": "I"}, "error": {"code": 502}}]}, '{"code": 502}'),
        ({"choices": [{"message": {"content": "I"}, "finish_reason": "error"}]}, "the response failed"),
    ],
)
def test_a_reply_with_status_200_that_is_an_error_is_not_recorded(
    content: Any, shown: str, provider: Service, tmp_path: Path
) -> None:
    provider.answer = lambda _path, _body: (200, json.dumps(content), "application/json")
    recorder = CassetteRecorder(CassetteDirectory(tmp_path, "once"), "item", "parcel", 1)
    result = run(ask(), recorder=recorder)
    assert result.error is not None
    assert (result.outcome, result.error.origin) == ("broken", "provider")
    assert result.error.message.startswith(f"openai:m: {provider.url}/v1 answered 200 with an error: {shown}")
    assert recorder.finish(ended=True).added == 0


def test_texts_that_are_not_unicode_are_recorded_and_counted(provider: Service) -> None:
    provider.answer = lambda _path, _body: {
        "model": "m-\ud800",
        "choices": [{"message": {"content": "Hello \ud83d"}}],
        "usage": USAGE,
    }
    result = run(ask("Hi \udc00", model="m\udfff"))
    assert result.outcome == "passed"
    (call,) = result.model_calls
    assert call.reply is not None
    assert (call.reply.text, call.reply.model, call.model["name"]) == ("Hello ?", "m-?", "m?")
    assert [result.messages[index].content for index in call.messages][1:] == ["Hi ?"]
    assert result.usage["agent"].input == 20
    assert provider.requests[0][1]["messages"][0]["content"] == "Hi \udc00"


def test_a_fault_of_the_gateway_is_not_the_failure_of_the_agent(provider: Service) -> None:
    def limit(_model: RemoteModel) -> RetryingModel:
        raise LookupError("no limits")

    result = run(ask(), SessionRules(limit))
    assert result.error is not None
    assert (result.outcome, result.error.origin) == ("broken", "harness")
    assert result.error.message == "no limits"
    assert provider.requests == []


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"])
def test_a_base_url_that_is_none_is_reported_before_the_first_case(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "localhost/v1")
    with pytest.raises(UsageError) as refused:
        load_program("cmd: echo Hi", RULES)
    assert str(refused.value) == (
        f"the base URL of {variable} is 'localhost/v1'; expected http(s)://host[:port][/path]"
    )
    load_program("cmd: echo Hi", SessionRules(limited, replays_only=True))
    path = tmp_path / "desk.agent.yaml"
    path.write_text("command: echo Hi\ngateway: false\n")
    load_program(str(path), RULES)


def test_the_token_limit_stops_the_agent(provider: Service) -> None:
    provider.answer = lambda _path, _body: {**CHAT, "usage": USAGE}
    result = run(ask(), max_tokens=20)
    assert (result.stop, result.stop_reason) == ("token_limit", "23 tokens were used; the limit is 20")


async def sent(url: str, target: str, method: str = "POST", body: Any = None) -> int:
    """Send a request whose target no client has normalized; return the status."""
    content = json.dumps(body or {"model": "m", "messages": []}).encode()
    parts = urlsplit(url)

    def send() -> int:
        with contextlib.closing(http.client.HTTPConnection(parts.netloc, timeout=20)) as connection:
            connection.request(method, parts.path + target, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()  # the call is recorded before its response ends
            return response.status

    return await asyncio.to_thread(send)


@pytest.mark.parametrize(
    ("variable", "method", "target"),
    [
        ("OPENAI_BASE_URL", "POST", "/chat/completions#x"),
        ("OPENAI_BASE_URL", "POST", "/chat/completions;x"),
        ("OPENAI_BASE_URL", "POST", "/chat/complet%69ons"),
        ("OPENAI_BASE_URL", "POST", "/models/../chat/completions"),
        ("OPENAI_BASE_URL", "POST", "//chat/completions"),
        ("OPENAI_BASE_URL", "POST", "/batches"),
        ("OPENAI_BASE_URL", "PUT", "/chat/completions"),
        ("OPENAI_BASE_URL", "GET", "/models/../admin"),
        ("OPENAI_BASE_URL", "GET", "#x"),
        ("OPENAI_BASE_URL", "GET", "0/v1"),
        ("ANTHROPIC_BASE_URL", "POST", "0/v1/messages"),
        ("ANTHROPIC_BASE_URL", "GET", ".example/v1/models"),
        ("ANTHROPIC_BASE_URL", "GET", "@example/v1/models"),
    ],
)
def test_a_request_that_would_not_count_is_refused(variable: str, method: str, target: str, provider: Service) -> None:
    async def program(urls: dict[str, str]) -> str:
        return str(await sent(urls[variable], target, method))

    assert run(program).answer == "404"
    assert provider.requests == []


def test_a_model_call_without_a_model_is_refused_and_embeddings_count(provider: Service) -> None:
    provider.answer = lambda _path, _body: {
        "data": [],
        "model": "e-1",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }

    async def program(urls: dict[str, str]) -> str:
        url = urls["OPENAI_BASE_URL"]
        refused = await sent(url, "/completions", body={"prompt": "Hi"})
        return f"{refused} {await sent(url, '/embeddings', body={'model': 'e', 'input': ['a', 'b']})}"

    result = run(program)
    assert (result.answer, result.usage["agent"].total, len(provider.requests)) == ("400 200", 7, 1)


def test_nothing_is_sent_once_the_token_limit_is_reached(provider: Service) -> None:
    provider.answer = lambda _path, _body: {**CHAT, "usage": USAGE}

    async def program(urls: dict[str, str]) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                statuses.append((await ask()(urls))[:3])
        return "Done"

    statuses: list[str] = []
    result = run(program, max_tokens=20)
    assert (result.stop, len(provider.requests), set(statuses[1:])) == ("token_limit", 1, {"503"})


def test_requests_that_wait_are_not_sent_once_the_token_limit_is_reached(provider: Service) -> None:
    provider.answer = lambda _path, _body: {**CHAT, "usage": USAGE}
    limiter = LocalRateLimiter(1)

    async def program(urls: dict[str, str]) -> str:
        return str(await asyncio.gather(*(ask(str(number))(urls) for number in range(30))))

    result = run(program, SessionRules(lambda model: RetryingModel(model, limiter, sleep=at_once)), max_tokens=20)
    assert (result.stop, len(result.model_calls)) == ("token_limit", len(provider.requests))
    assert len(provider.requests) < 5


def test_a_spent_budget_ends_the_case(provider: Service) -> None:
    provider.answer = lambda _path, _body: {**CHAT, "usage": USAGE}
    budget = Budget(tokens=10)

    def limit(model: RemoteModel) -> RetryingModel:
        return limited(BudgetedModel(model, budget, None))

    async def twice(urls: dict[str, str]) -> str:
        return await ask()(urls) + await ask()(urls)

    with pytest.raises(NotRunError) as ended:
        run(twice, SessionRules(limit))
    assert len(ended.value.model_calls) == 1
    assert len(provider.requests) == 1


@pytest.mark.parametrize("reply", [{**CHAT, "usage": USAGE}, CHAT_EVENTS])
def test_recorded_replies_are_replayed_as_they_came(reply: Any, provider: Service, tmp_path: Path) -> None:
    provider.answer = lambda _path, _body: reply

    def recorder(mode: RecordMode) -> CassetteRecorder:
        return CassetteRecorder(CassetteDirectory(tmp_path, mode), "item", "parcel", 1)

    recording = recorder("once")
    live = run(ask(), recorder=recording)
    assert recording.finish(ended=True).added == 1
    replayed = run(ask(), recorder=recorder("none"))
    assert (replayed.answer, replayed.usage["agent"].input) == (live.answer, 20)
    assert len(provider.requests) == 1
    missed = run(ask("Bye"), recorder=recorder("none"))
    assert missed.error is not None
    assert (missed.outcome, missed.error.origin) == ("broken", "provider")
    assert "no recorded call matches this request of the agent" in missed.error.message


def test_other_requests_are_passed_on_uncounted_and_only_during_the_case(provider: Service) -> None:
    provider.answer = lambda path, _body: {"path": path}
    kept: list[str] = []

    async def program(urls: dict[str, str]) -> str:
        kept.append(urls["OPENAI_BASE_URL"])
        return str(await asyncio.to_thread(post, f"{kept[-1]}/models?limit=2"))

    result = run(program)
    assert result.answer == '(200, b\'{"path": "/v1/models?limit=2"}\')'
    assert result.model_calls == ()
    assert post(f"{kept[0]}/models")[0] == 404
    replayed = run(program, SessionRules(limited, replays_only=True))
    assert "GET /models?limit=2: only recorded requests to models are answered" in replayed.answer
    assert len(provider.requests) == 1


def test_a_request_in_chunks_is_passed_on_whole(provider: Service) -> None:
    provider.answer = lambda _path, _body: {**CHAT, "usage": USAGE}
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode()

    async def chunks() -> AsyncIterator[bytes]:
        yield body[:7]
        yield body[7:]

    async def program(urls: dict[str, str]) -> str:
        async with httpx2.AsyncClient() as client:
            response = await client.post(f"{urls['OPENAI_BASE_URL']}/chat/completions", content=chunks())
        return str(response.status_code)

    result = run(program)
    assert (result.answer, result.usage["agent"].input) == ("200", 20)
    ((headers, content),) = provider.requests
    assert (headers["Content-Length"], content) == (str(len(body)), json.loads(body))


def test_a_body_that_is_too_long_is_not_passed_on(provider: Service) -> None:
    async def program(urls: dict[str, str]) -> str:
        async with httpx2.AsyncClient() as client:
            content = b" " * (64 * 1024 * 1024 + 1)
            response = await client.post(f"{urls['OPENAI_BASE_URL']}/chat/completions", content=content)
        return response.text

    assert "the body has more than 67,108,864 bytes" in run(program).answer
    assert provider.requests == []


@pytest.mark.parametrize(
    ("variable", "header", "path"),
    [
        ("OPENAI_API_KEY", "authorization", "openai/v1/chat/completions"),
        ("ANTHROPIC_API_KEY", "x-api-key", "anthropic/v1/messages"),
        ("ANTHROPIC_AUTH_TOKEN", "authorization", "anthropic/v1/messages"),
    ],
)
def test_the_gateway_inserts_the_key_that_a_program_does_not_get(
    variable: str, header: str, path: str, provider: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, KEY)
    monkeypatch.chdir(tmp_path)
    Path("agent.py").write_text(PROGRAM)
    provider.answer = lambda _path, _body: {**CHAT, "usage": USAGE}
    agent = command_agent(f"cmd: {sys.executable} -S agent.py {variable} {header} {path}", RULES)
    result = asyncio.run(run_case(RunSpec(resolved_case(), agent, opened, (content,), {"safety": 2})))
    assert result.answer == f"toolemu-gateway-inserts-{variable} 200"
    sent_headers = {name.lower(): value for name, value in provider.requests[0][0].items()}
    assert sent_headers[header] in (KEY, f"Bearer {KEY}")


PROGRAM = """\
import json, os, sys, urllib.request
variable, header, path = sys.argv[1:]
base, key = os.environ["OPENAI_BASE_URL"].removesuffix("openai/v1"), os.environ[variable]
headers = {header: key if header == "x-api-key" else f"Bearer {key}"}
request = urllib.request.Request(base + path, json.dumps({"model": "m", "messages": []}).encode(), headers)
print(key, urllib.request.urlopen(request).status)
"""


def test_a_command_gets_the_base_urls_unless_its_file_turns_that_off(tmp_path: Path) -> None:
    def answer(agent: Any) -> str:
        spec = RunSpec(resolved_case(), agent, opened, (content,), {"safety": 2})
        return asyncio.run(run_case(spec)).answer

    command = "sh -c 'echo \"<$OPENAI_BASE_URL>\"'"
    path = tmp_path / "desk.agent.yaml"
    path.write_text(f"command: {json.dumps(command)}\ngateway: false\n")
    assert "/openai/v1>" in answer(command_agent(f"cmd: {command}", RULES))
    assert answer(load_agent_file(str(path), {}, RULES)) == "<>"
