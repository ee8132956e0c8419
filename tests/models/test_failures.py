"""Failures of requests: each is one sentence, is classified as transient or permanent, and never contains a key."""

from __future__ import annotations

import asyncio
import email.utils
import json
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from operator import methodcaller
from typing import Any

import pytest

from pytest_toolemu.core.messages import Ledger
from pytest_toolemu.errors import ModelError, UsageError
from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.models.endpoint import Parameters, parse_spec
from pytest_toolemu.models.model_pool import open_model
from pytest_toolemu.models.retrying import LocalRateLimiter, RetryingModel
from pytest_toolemu.models.structured_output import ask
from tests.loopback import Fault, replies
from tests.loopback.fixtures import Loopback
from tests.models.conftest import (
    ANTHROPIC_KEY,
    OPENAI_KEY,
    QUESTION,
    Answer,
    Answers,
    RawServer,
    complete,
    opened,
    using,
)

preflight = methodcaller("preflight")
PROVIDERS = ("openai", "anthropic", "vllm")
ROUTES = {"openai": "/v1/chat/completions", "vllm": "/v1/chat/completions", "anthropic": "/v1/messages"}

each_provider = pytest.mark.parametrize("provider", PROVIDERS)


def failure(model: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        complete(model)
    return caught.value


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Reserve a port on which nothing listens, so that no other process can get it during the test."""
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))
        yield bound_socket.getsockname()[1]


@each_provider
@pytest.mark.parametrize(
    ("status", "transient"),
    [
        (400, False),
        (403, False),
        (404, False),
        (413, False),
        (408, True),
        (409, True),
        (429, True),
        (500, True),
        (529, True),
    ],
)
def test_which_statuses_are_transient(loopback: Loopback, provider: str, status: int, transient: bool) -> None:
    server = loopback(replies([Fault(status=status, message="Not now.")]))
    error = failure(opened(provider, server.url))
    assert (error.status, error.transient, error.retry_after) == (status, transient, None)
    assert str(error).startswith(f"{provider}:loopback: {server.url}")
    assert str(error).endswith(f" answered {status}: Not now.")


@each_provider
def test_an_account_without_credit_is_a_permanent_failure(loopback: Loopback, provider: str) -> None:
    code = "billing_error" if provider == "anthropic" else "insufficient_quota"
    error = failure(opened(provider, loopback(replies([Fault(status=429, code=code)])).url))
    assert not error.transient


@each_provider
def test_the_wait_follows_the_retry_after_header(loopback: Loopback, provider: str) -> None:
    assert failure(opened(provider, loopback(replies([Fault(status=429, retry_after=2.5)])).url)).retry_after == 2.5


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "-1"}, 0.0),
        ({"retry-after": email.utils.formatdate(time.time() - 60, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "?", "retry-after": "3"}, 3.0),
    ],
)
def test_forms_of_retry_after(raw: RawServer, headers: dict[str, str], expected: float | None) -> None:
    with raw({ROUTES["openai"]: (429, headers, "{}")}) as server:
        assert failure(opened("openai", server.url)).retry_after == expected


@each_provider
@pytest.mark.parametrize("kind", ["drop", "truncate"])
def test_a_broken_connection_is_transient(loopback: Loopback, provider: str, kind: Any) -> None:
    error = failure(opened(provider, loopback(replies([Fault(kind)])).url))
    assert (error.status, error.transient) == (None, True)
    assert "cannot be reached" in str(error)


@each_provider
def test_a_stalled_response_times_out(loopback: Loopback, provider: str) -> None:
    error = failure(opened(provider, loopback(lambda _: Fault("stall")).url, timeout=0.05))
    assert (error.status, error.transient) == (None, True)
    assert str(error).endswith("did not answer within 0.05 s")


@each_provider
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content-type": "text/html"}, "<html>Bad gateway</html>"),
        ({}, "{not json"),
        ({}, '{"error": {"message": "upstream"}}'),
        ({}, '{"choices": [], "content": null}'),
        ({}, "[]"),
    ],
)
def test_a_response_with_status_200_that_is_no_reply(
    raw: RawServer, provider: str, headers: dict[str, str], body: str
) -> None:
    with raw({ROUTES[provider]: (200, headers, body)}) as server:
        error = failure(opened(provider, server.url))
    assert (error.status, error.transient) == (200, True)
    assert "instead of a reply" in str(error)


CRASH = {"code": 502, "message": "Upstream crashed"}


@pytest.mark.parametrize(
    ("top", "choice", "shown"),
    [
        ({"error": CRASH}, {"finish_reason": None}, CRASH),
        ({}, {"finish_reason": "error", "error": CRASH}, CRASH),
        ({}, {"finish_reason": "error"}, {"finish_reason": "error"}),
    ],
)
def test_a_reply_that_ends_with_an_error_is_a_transient_failure(
    raw: RawServer, top: dict[str, Any], choice: dict[str, Any], shown: dict[str, Any]
) -> None:
    body = json.dumps({"choices": [{"message": {"content": "I will now"}, **choice}], **top})
    with raw({ROUTES["openai"]: (200, {}, body)}) as server:
        error = failure(opened("openai", server.url))
    assert (error.status, error.transient) == (200, True)
    assert f"/v1 answered with '(the reply ended with an error: {json.dumps(shown)}) {{" in str(error)


@each_provider
def test_a_malformed_reply_is_an_error_that_names_the_problem(raw: RawServer, provider: str) -> None:
    call = {"id": 7, "type": "tool_use", "name": "Pay", "input": {}, "function": {"name": "Pay", "arguments": "{}"}}
    body = json.dumps({"content": [call], "choices": [{"message": {"tool_calls": [call]}}]})
    with raw({ROUTES[provider]: (200, {}, body)}) as server:
        message = str(failure(opened(provider, server.url)))
    assert "answered with '(id: Input should be a valid string) {" in message
    assert message.endswith("instead of a reply")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": "plain"}', "plain"),
        ('{"detail": [{"loc": ["body", "x"], "msg": "bad"}]}', '[{"loc": ["body", "x"], "msg": "bad"}]'),
        ('{"message": "old style", "object": "error"}', "old style"),
        ('{"error": {"message": "no.", "param": "tools"}}', "no. (tools)"),
        ("<h1>Sorry</h1>\n<p>down</p>", "<h1>Sorry</h1> <p>down</p>"),
    ],
)
def test_error_bodies_in_many_formats(raw: RawServer, body: str, message: str) -> None:
    with raw({ROUTES["openai"]: (418, {}, body)}) as server:
        assert str(failure(opened("openai", server.url))).endswith(f"answered 418: {message}")


@each_provider
def test_a_refused_key_names_its_variable(loopback: Loopback, provider: str) -> None:
    error = failure(opened(provider, loopback(key="the right one").url))
    variable = {"openai": "OPENAI", "anthropic": "ANTHROPIC", "vllm": "VLLM"}[provider] + "_API_KEY"
    assert (error.status, error.transient) == (401, False)
    assert f"refused the key in {variable} (401); put a valid key in {variable}" in str(error)


@each_provider
def test_a_missing_key_that_the_endpoint_requires(loopback: Loopback, provider: str) -> None:
    url = loopback(key="the right one").url
    spec = parse_spec(f"{provider}:m@{url}")
    error = failure(open_model(spec, Parameters(), {}))
    assert "requires a key (401)" in str(error)


@each_provider
@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 200])
def test_a_key_is_never_shown(raw: RawServer, provider: str, status: int) -> None:
    """The endpoint echoes the credential, as some gateways do; no error, record or representation may contain it."""
    echo = '{"error": {"message": "who is {authorization}? And {authorization}!", "code": "{authorization}"}}'
    texts: list[str] = []

    async def talk(model: Any) -> None:
        ledger = Ledger()
        with pytest.raises(ModelError) as caught:
            await ask(model, "agent", ledger, QUESTION)
        error: BaseException | None = caught.value
        while error is not None:
            texts.extend(
                ["".join(traceback.TracebackException.from_exception(error, capture_locals=True).format()), repr(error)]
            )
            error = error.__cause__ or error.__context__
        texts.append(repr(model) + repr(model.identity) + repr(RetryingModel(model, LocalRateLimiter(1))))
        texts.extend(call.model_dump_json() for call in ledger.model_calls)
        texts.extend(message.model_dump_json() for message in ledger.messages)

    with raw({ROUTES[provider]: (status, {}, echo)}) as server:
        using(opened(provider, server.url), talk)
        assert any("canary" in authorization for authorization in server.authorizations)  # it was sent
    text = redact("\n".join(texts))
    assert OPENAI_KEY not in text
    assert ANTHROPIC_KEY not in text
    assert status in (200, 401) or "_API_KEY redacted]" in text


@each_provider
def test_preflight_accepts_a_listed_model_without_calling_it(loopback: Loopback, provider: str) -> None:
    server = loopback(models=["big", "small"])
    using(opened(provider, server.url, name="small"), preflight)
    assert [(request.method, request.path) for request in server.requests] == [("GET", "/v1/models")]


@each_provider
def test_preflight_names_the_closest_model(loopback: Loopback, provider: str) -> None:
    url = loopback(models=["big-model", "small-model"]).url
    with pytest.raises(UsageError, match=r"does not serve a model 'big-modl'; did you mean 'big-model'\?"):
        using(RetryingModel(opened(provider, url, name="big-modl"), LocalRateLimiter(1)), preflight)


@each_provider
def test_preflight_accepts_an_alias_that_the_endpoint_knows(raw: RawServer, provider: str) -> None:
    answers: Answers = {
        "/v1/models": (200, {}, '{"data": [{"id": "m-2026"}]}'),
        "/v1/models/m": (200, {}, '{"id": "m-2026"}'),
    }
    with raw(answers) as server:
        using(opened(provider, server.url, name="m"), preflight)
        assert len(server.authorizations) == 2


@each_provider
def test_preflight_stops_at_a_refused_key(loopback: Loopback, provider: str) -> None:
    with pytest.raises(UsageError, match=r"refused the key in .*_API_KEY"):
        using(opened(provider, loopback(key="the right one").url), preflight)


@each_provider
def test_preflight_stops_where_nothing_listens(provider: str, closed_port: int) -> None:
    url = f"http://127.0.0.1:{closed_port}"
    with pytest.raises(
        UsageError, match=rf"{provider}:loopback: {url}.* cannot be reached .*is a server running there"
    ):
        using(opened(provider, url), preflight)


@each_provider
@pytest.mark.parametrize(
    "answer",
    [
        (404, {}, "{}"),
        (405, {}, "{}"),
        (403, {}, "{}"),
        (503, {}, "{}"),
        (200, {}, '{"data": []}'),
        (200, {"content-type": "text/html"}, "<html>"),
    ],
)
def test_preflight_accepts_an_endpoint_that_cannot_be_checked(raw: RawServer, provider: str, answer: Answer) -> None:
    """Whatever the model list is, the route of completions exists, because it answers."""
    completions: Answers = {route: (400, {}, '{"error": "model: required"}') for route in set(ROUTES.values())}
    with raw({"/v1/models": answer, **completions}) as server:
        using(opened(provider, server.url), preflight)


class OnlyCompletions(BaseHTTPRequestHandler):
    """The smallest server for a model: it has one route, and relies on each request."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", "content": f"You said: {request['messages'][-1]['content']}"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = json.dumps({"id": "1", "model": request["model"], "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def test_a_server_with_one_route_survives_preflight() -> None:
    with HTTPServer(("127.0.0.1", 0), OnlyCompletions) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            using(opened("openai", url), preflight)
            assert complete(opened("openai", url)).text == "You said: Pay Anna."
        finally:
            server.shutdown()


PAGE: Answer = (200, {"content-type": "text/html"}, "<!doctype html><title>Welcome to nginx!</title>")


@pytest.mark.parametrize(
    ("provider", "path", "answers"),
    [
        ("openai", "/api", {}),
        ("openai", "/v1", {}),
        ("openai", "/api", {"/api/models": PAGE, "/api/chat/completions": PAGE}),
        ("openai", "/v1", {"/v1/chat/completions": (501, {}, "Unsupported method ('POST')")}),
        ("openai", "/v1", {"/v1/models": PAGE}),
        ("anthropic", "/claude", {}),
        ("anthropic", "/claude", {"/claude/v1/models": PAGE, "/claude/v1/messages": PAGE}),
    ],
)
def test_preflight_finds_a_wrong_path(raw: RawServer, provider: str, path: str, answers: Answers) -> None:
    with raw(answers) as server:
        url = server.url + path
        environ = {"OPENAI_API_KEY": OPENAI_KEY, "ANTHROPIC_API_KEY": ANTHROPIC_KEY}
        model = open_model(parse_spec(f"{provider}:m@{url}"), Parameters(), environ)
        with pytest.raises(UsageError, match=f"{provider}:m: {url} has no API for models at this path; correct the"):
            using(model, preflight)


@each_provider
def test_the_credentials_of_a_proxy_are_not_shown(
    provider: str, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:canary-0123456789@127.0.0.1:{closed_port}")
    with pytest.raises(UsageError, match=r"cannot be reached \(") as caught:
        using(opened(provider, "http://models.internal"), preflight)
    assert "canary" not in str(caught.value)


@each_provider
def test_preflight_stops_at_a_proxy_that_requires_a_password(
    raw: RawServer, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raw({}) as server:
        server.answers[f"{server.url}/v1/models"] = (407, {}, "who are you?")
        monkeypatch.setenv("HTTP_PROXY", server.url)
        with pytest.raises(UsageError, match=" answered 407: "):
            using(opened(provider, server.url), preflight)


@each_provider
def test_a_canceled_request_is_recorded(loopback: Loopback, provider: str) -> None:
    ledger = Ledger()

    async def talk(model: Any) -> None:
        task = asyncio.create_task(ask(model, "agent", ledger, QUESTION))
        while not server.requests:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    server = loopback(lambda _: Fault("stall"))
    using(opened(provider, server.url), talk)
    assert [call.error for call in ledger.model_calls] == ["the request was not finished"]
