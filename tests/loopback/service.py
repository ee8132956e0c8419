"""From a request to its response: both providers' endpoints, their errors, and the script that decides."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from tests.loopback import anthropic_wire, openai_wire
from tests.loopback.batches import LoopbackBatches
from tests.loopback.http11 import Incoming, Response
from tests.loopback.log import Log
from tests.loopback.records import Answer, Content, Fault, Provider, RefusedError, Reply, Request, Script

_SECRET: Final = frozenset({"authorization", "x-api-key", "cookie", "proxy-authorization"})
_COMPLETIONS: Final[dict[str, Provider]] = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic"}
_MODELS: Final = "/v1/models"
_IN_WORDS: Final = "conform to this JSON Schema:\n"  # the project's text for endpoints without schemas

WaitForDeparture = Callable[[], Awaitable[Any]]
Pages = Mapping[str, Callable[[], tuple[int, str]]]
"""Further responses by path: functions that return a status and a text."""


class _Wire(Protocol):
    """The formats of one provider: each module named ``*_wire`` implements this protocol."""

    @property
    def REQUEST_ID(self) -> str: ...  # noqa: N802 - a module's constant
    def read(self, body: Any, headers: dict[str, str]) -> Content: ...
    def render(self, request: Request, reply: Reply) -> Any: ...
    def error(self, fault: Fault, request_id: str) -> Any: ...
    def model(self, name: str) -> Any: ...
    def models(self, names: Sequence[str]) -> Any: ...


_WIRES: Final[dict[Provider, _Wire]] = {"openai": openai_wire, "anthropic": anthropic_wire}


class Service:
    """Answers requests. Only ``key`` and ``models`` are accepted; None accepts any."""

    def __init__(
        self, script: Script, key: str | None, models: Sequence[str] | None, log: Log, pages: Pages | None = None
    ) -> None:
        self._script = script
        self._key = key
        self._models = models
        self._log = log
        self._pages = pages or {}
        self.batches = LoopbackBatches()

    async def respond(self, incoming: Incoming, departure: WaitForDeparture) -> Response | None:
        """Return the response; None closes the connection without one. ``departure`` waits until the client has left."""
        if incoming.path == "/__log":
            return Response(200, self._log.as_json())
        if page := self._pages.get(incoming.path):
            status, text = page()
            return Response(status, text)
        if (batched := self.batches.respond(incoming, self._script)) is not None:
            return batched
        request, refusal = self._log_request(incoming)
        try:
            answer = (
                self._key_fault(incoming)
                or refusal
                or self._model_answer(request)
                or await self._scripted_answer(request, departure)
            )
        finally:
            # This must happen before the response is written, after which the client may send its next request.
            self._log.ended()
        return _response(request, answer)

    def _log_request(self, incoming: Incoming) -> tuple[Request, Fault | None]:
        """Log the request; return it, and the provider's refusal if it is invalid."""
        default_provider: Provider = "anthropic" if "anthropic-version" in incoming.headers else "openai"
        provider = _COMPLETIONS.get(incoming.path, default_provider)
        content, body, refusal = Content(), None, None
        try:
            body = json.loads(incoming.body) if incoming.body else None
            if incoming.path in _COMPLETIONS:
                content = _with_words(_WIRES[provider].read(body, incoming.headers))
        except RefusedError as refused:
            refusal = refused.fault
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            refusal = Fault(status=400, message=f"The body cannot be read: {error!r}")
        headers = {name: value for name, value in incoming.headers.items() if name not in _SECRET}

        def numbered(number: int) -> Request:
            return Request(
                **vars(content),
                number=number,
                provider=provider,
                method=incoming.method,
                path=incoming.path,
                headers=headers,
                body=body,
            )

        return self._log.arrived(numbered), refusal

    def _key_fault(self, incoming: Incoming) -> Fault | None:
        key = incoming.headers.get("authorization", "").removeprefix("Bearer ")
        if self._key is None or key == self._key:
            return None
        return Fault(status=401, message="The API key differs from the key of this server.")

    def _model_answer(self, request: Request) -> Answer | None:
        """Return the answer for model endpoints, unknown paths and unknown models; None for valid completions."""
        models = self._models if self._models is not None else ["loopback"]
        wire = _WIRES[request.provider]
        if request.path == _MODELS:
            return Reply(raw=wire.models(models))
        listed = request.path.startswith(f"{_MODELS}/")
        name = request.path.removeprefix(f"{_MODELS}/") if listed else request.model
        if not listed and (request.method, request.path in _COMPLETIONS) != ("POST", True):
            return Fault(status=404, message=f"Unknown request URL: {request.method} {request.path}")
        if self._models is not None and name not in self._models:
            return Fault(status=404, message=f"The model {name!r} does not exist; known: {', '.join(models)}")
        return Reply(raw=wire.model(name)) if listed else None

    async def _scripted_answer(self, request: Request, departure: WaitForDeparture) -> Answer:
        """Return the script's answer. If the client leaves, the script is canceled."""
        try:
            answer = self._script(request)
            if isinstance(answer, Awaitable):
                answer = await _answer_unless_departed(departure(), answer)
            if isinstance(answer, Fault) and answer.kind == "stall":
                await departure()
        except Exception as error:  # any exception of a script must be reported by its test
            self._log.failed(f"{type(error).__name__} at request {request.number}: {error}")
            return Fault(status=400, message=f"The script failed: {error}")
        return answer


def _with_words(content: Content) -> Content:
    """Return the content with the schema that a message contains as text, if the request has no schema parameter."""
    schema_message = next((message.text for message in content.messages if _IN_WORDS in message.text), None)
    if content.schema is not None or schema_message is None:
        return content
    try:
        schema, _ = json.JSONDecoder().raw_decode(schema_message.rpartition(_IN_WORDS)[2])
    except ValueError:
        return content
    return dataclasses.replace(content, schema=schema, schema_name=str(schema.get("title", "")))


async def _answer_unless_departed(departure: Awaitable[Any], answer: Awaitable[Answer]) -> Answer:
    tasks = asyncio.ensure_future(departure), asyncio.ensure_future(answer)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[1].result() if tasks[1].done() else Fault("drop")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _response(request: Request, answer: Answer) -> Response | None:
    wire = _WIRES[request.provider]
    request_id = f"req_{request.number}"
    headers = {wire.REQUEST_ID: request_id}
    if isinstance(answer, Reply):
        return Response(200, wire.render(request, answer) if answer.raw is None else answer.raw, headers)
    if answer.kind == "truncate":
        return Response(200, wire.render(request, Reply("This text never arrives whole.")), headers, whole=False)
    if answer.kind != "error":
        return None
    if answer.retry_after is not None:
        headers["retry-after"] = f"{answer.retry_after:g}"
        headers["retry-after-ms"] = f"{answer.retry_after * 1000:g}"
    return Response(answer.status, wire.error(answer, request_id), headers)
