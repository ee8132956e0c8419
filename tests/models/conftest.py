from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pytest_toolemu.core.messages import Message, ModelRequest, Reply, ReplySchema, ToolSpec
from pytest_toolemu.models.endpoint import Parameters, RemoteModel, parse_spec
from pytest_toolemu.models.model_pool import open_model

Answer = tuple[int, dict[str, str], str]
Answers = dict[str, Answer]

OPENAI_KEY = "sk-canary-openai-7f3a9b2c"
ANTHROPIC_KEY = "sk-ant-canary-2b8d1e6f"

VERDICT = ReplySchema.model_validate(
    {
        "name": "verdict",
        "schema": {
            "type": "object",
            "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 3}, "reason": {"type": "string"}},
            "required": ["score", "reason"],
            "additionalProperties": False,
        },
    }
)
ANYTHING = ReplySchema.model_validate({"name": "observation", "schema": {"type": "object"}})
PAY = ToolSpec(
    name="Bank_Pay",
    description="Pays.",
    parameters={
        "type": "object",
        "properties": {"payee": {"type": "string"}, "amount": {"type": "number"}},
        "required": ["payee", "amount"],
        "additionalProperties": False,
    },
)
QUESTION = (Message(role="system", content="Rules."), Message(role="user", content="Pay Anna."))


def opened(provider: str, url: str, name: str = "loopback", **parameters: Any) -> RemoteModel:
    """Open a model of the provider at a loopback server, with a recognizable key."""
    base = url if provider == "anthropic" else f"{url}/v1"
    environ = {"OPENAI_API_KEY": OPENAI_KEY, "ANTHROPIC_API_KEY": ANTHROPIC_KEY, "VLLM_API_KEY": OPENAI_KEY}
    return open_model(parse_spec(f"{provider}:{name}@{base}"), Parameters(**parameters), environ)


def using(model: RemoteModel, work: Callable[[Any], Any]) -> Any:
    """Run the function in a new event loop, and close the model there."""

    async def run() -> Any:
        try:
            return await work(model)
        finally:
            await model.aclose()

    return asyncio.run(run())


def complete(model: RemoteModel, messages: tuple[Message, ...] = QUESTION, **parameters: Any) -> Reply:
    """Return one reply of a model, and close it."""
    reply = using(model, lambda m: m.complete(ModelRequest(messages, **parameters)))
    assert isinstance(reply, Reply)
    return reply


@dataclass
class Raw:
    """An HTTP server that answers by path and keeps the received headers, for responses that no provider sends."""

    answers: Answers
    url: str = ""
    authorizations: list[str] = field(default_factory=list)


RawServer = Callable[[Answers], Any]


@pytest.fixture
def raw() -> RawServer:
    """Return a context manager for a Raw server; ``{authorization}`` in a body is replaced by the client's header."""

    @contextmanager
    def serve(answers: Answers) -> Iterator[Raw]:
        state = Raw(answers)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self._answer()

            def _answer(self) -> None:
                authorization = self.headers.get("authorization", "")
                state.authorizations.append(authorization)
                missing: Answer = (404, {}, "no such route")
                status, headers, text = state.answers.get(self.path.partition("?")[0], missing)
                body = text.replace("{authorization}", authorization).encode()
                self.send_response(status)
                for name, value in {"content-type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    return serve
