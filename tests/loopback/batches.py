"""Both providers' batches: OpenAI's files and batch objects, and Anthropic's message batches.

A batch ends at the request for its status whose number ``polls`` says. Then the server's script answers each request
in it, except those for which ``fate`` returns another end.
"""

from __future__ import annotations

import email
import email.policy
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from tests.loopback import anthropic_wire, openai_wire
from tests.loopback.http11 import Incoming, Response
from tests.loopback.records import Fault, Provider, Reply, Request, Script

Fate = Literal["answered", "expired", "canceled", "missing"]

_CUSTOM_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_COMPLETIONS: Final = "/v1/chat/completions"


@dataclass
class LoopbackBatch:
    """A batch that a client has created; ``requests`` are bodies by custom ID."""

    id: str
    provider: Provider
    requests: dict[str, Any]
    file: str = ""
    status_requests: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)
    created: float = 0.0

    @property
    def ended(self) -> bool:
        return bool(self.lines)


@dataclass
class LoopbackBatches:
    """The batches of one server, and how they end.

    ``refusal`` is the text with which OpenAI refuses the next batch after it has read its file. ``faults`` answer
    requests to the batch API by the method, a space, and the path, once each; with ``lost``, the request is carried out
    nevertheless. While ``down`` is set, it answers every request.
    """

    polls: int = 1
    fate: Callable[[Request], Fate] = lambda _request: "answered"
    refusal: str = ""
    faults: dict[str, Fault] = field(default_factory=dict)
    lost: bool = False
    down: Fault | None = None
    all: list[LoopbackBatch] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def sizes(self) -> list[int]:
        """The numbers of requests of all batches."""
        return [len(batch.requests) for batch in self.all]

    def respond(self, incoming: Incoming, script: Script) -> Response | None:
        """Return the response to a request to the batch API; None for other requests."""
        place = f"{incoming.method} {incoming.path}"
        if not re.match(r"(GET|POST) /v1/(files|batches|messages/batches)(/|$)", place):
            return None
        self.asked.append(place)
        provider: Provider = "anthropic" if "/messages/" in incoming.path else "openai"
        fault = self.down or self.faults.pop(place, None)
        response = None if fault and not self.lost else self._respond(place, incoming, script)
        if fault is not None:
            wire = anthropic_wire if provider == "anthropic" else openai_wire
            return Response(fault.status, wire.error(fault, "req_batch"))
        return response

    def _respond(self, place: str, incoming: Incoming, script: Script) -> Response:
        parts = place.split("/")
        answer = self._anthropic(parts, incoming, script) if parts[2] == "messages" else None
        answer = self._openai(parts, incoming, script) if answer is None else answer
        if answer is None:
            return Response(404, {"error": {"message": f"Unknown request URL: {place}", "type": "not_found_error"}})
        return Response(200, answer)

    def _openai(self, parts: list[str], incoming: Incoming, script: Script) -> Any:
        match parts:
            case ["POST ", "v1", "files"]:
                return self._upload(incoming)
            case ["POST ", "v1", "batches"]:
                return self._openai_status(self._openai_batch(json.loads(incoming.body)), None)
            case ["GET ", "v1", "batches"]:
                page = [self._openai_status(batch, None) for batch in self.all]
                return {"object": "list", "data": page, "has_more": False}
            case ["GET ", "v1", "batches", name]:
                return self._openai_status(self._named(name), script)
            case ["GET ", "v1", "files", name, "content"]:
                kind, _, batch = name.partition("-")
                return _jsonl([line for line in self._named(batch).lines if _is_output(line) == (kind == "output")])
        return None

    def _anthropic(self, parts: list[str], incoming: Incoming, script: Script) -> Any:
        match parts:
            case ["POST ", "v1", "messages", "batches"]:
                requests = {one["custom_id"]: one["params"] for one in json.loads(incoming.body)["requests"]}
                assert all(_CUSTOM_ID.fullmatch(name) for name in requests), "a custom ID that Anthropic refuses"
                return self._anthropic_status(self._add("anthropic", "msgbatch", requests), None)
            case ["GET ", "v1", "messages", "batches"]:
                page = [self._anthropic_status(batch, None) for batch in self.all]
                return {"data": page, "has_more": False, "first_id": None, "last_id": None}
            case ["GET ", "v1", "messages", "batches", name]:
                return self._anthropic_status(self._named(name), script)
            case ["GET ", "v1", "messages", "batches", name, "results"]:
                return _jsonl(self._named(name).lines)
        return None

    def _named(self, name: str) -> LoopbackBatch:
        return next(batch for batch in self.all if batch.id == name)

    def _add(self, provider: Provider, prefix: str, requests: dict[str, Any], file: str = "") -> LoopbackBatch:
        name = f"{prefix}_{len(self.all) + 1}"
        self.all.append(LoopbackBatch(name, provider, requests, file, created=time.time()))
        return self.all[-1]

    def _upload(self, incoming: Incoming) -> dict[str, Any]:
        head = f"content-type: {incoming.headers['content-type']}\r\n\r\n".encode()
        parts = email.message_from_bytes(head + incoming.body, policy=email.policy.HTTP).iter_parts()
        form = {str(part.get_param("name", header="content-disposition")): part.get_content() for part in parts}
        assert form["purpose"].strip() == "batch"
        name = f"file-{len(self.files) + 1}"
        content = form["file"]
        self.files[name] = content.decode() if isinstance(content, bytes) else content
        return {"id": name, "object": "file", "bytes": len(self.files[name]), "purpose": "batch", "status": "processed"}

    def _openai_batch(self, body: dict[str, Any]) -> LoopbackBatch:
        assert (body["completion_window"], body["endpoint"]) == ("24h", _COMPLETIONS)
        lines = [json.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
        assert {(line["method"], line["url"]) for line in lines} == {("POST", _COMPLETIONS)}
        assert len({line["body"]["model"] for line in lines}) == 1, "a batch of OpenAI has one model"
        assert len({line["custom_id"] for line in lines}) == len(lines), "custom IDs are unique"
        requests = {line["custom_id"]: line["body"] for line in lines}
        return self._add("openai", "batch", requests, body["input_file_id"])

    def _advance(self, batch: LoopbackBatch, script: Script | None) -> None:
        """Count a request for the status of a batch, and end the batch if it is time."""
        if script is None or batch.ended:
            return
        batch.status_requests += 1
        if batch.status_requests >= self.polls:
            results = (self._result(batch, name, body, script) for name, body in batch.requests.items())
            # Neither provider promises the order of the requests.
            batch.lines = [line for line in results if line is not None][::-1] or [{"custom_id": "none"}]

    def _result(self, batch: LoopbackBatch, name: str, body: Any, script: Script) -> dict[str, Any] | None:
        wire = anthropic_wire if batch.provider == "anthropic" else openai_wire
        content = wire.read(body, {"anthropic-version": "2026-10-21"})
        number = next(self._numbers)
        path = "/v1/messages" if batch.provider == "anthropic" else _COMPLETIONS
        request = Request(
            **vars(content), number=number, provider=batch.provider, method="POST", path=path, headers={}, body=body
        )
        fate = self.fate(request)
        if fate == "missing":
            return None
        answer = script(request) if fate == "answered" else None
        assert not hasattr(answer, "__await__"), "scripts of batches answer at once"
        finished = answer if isinstance(answer, Reply | Fault) else None
        if batch.provider == "anthropic":
            return {"custom_id": name, "result": _anthropic_result(request, fate, finished)}
        return {"id": f"batch_req_{number}", "custom_id": name, **_openai_result(request, fate, finished)}

    def _openai_status(self, batch: LoopbackBatch, script: Script | None) -> dict[str, Any]:
        self._advance(batch, script)
        failed = bool(self.refusal) and script is not None
        done = len(batch.lines)
        status = "failed" if failed else "completed" if batch.ended else "in_progress"
        errors = {"object": "list", "data": [{"code": "invalid", "message": self.refusal, "line": None}]}
        if failed:
            self.refusal = ""
        return {
            "id": batch.id,
            "object": "batch",
            "endpoint": _COMPLETIONS,
            "input_file_id": batch.file,
            "completion_window": "24h",
            "created_at": int(batch.created),
            "status": status,
            "errors": errors if failed else None,
            "output_file_id": f"output-{batch.id}" if any(map(_is_output, batch.lines)) else None,
            "error_file_id": f"errors-{batch.id}" if not all(map(_is_output, batch.lines)) else None,
            "request_counts": {"total": len(batch.requests), "completed": done, "failed": 0},
        }

    def _anthropic_status(self, batch: LoopbackBatch, script: Script | None) -> dict[str, Any]:
        self._advance(batch, script)
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        counts["succeeded" if batch.ended else "processing"] = len(batch.requests)
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if batch.ended else "in_progress",
            "request_counts": counts,
            "created_at": datetime.fromtimestamp(batch.created, UTC).isoformat(),
            "expires_at": datetime.fromtimestamp(batch.created + 86_400, UTC).isoformat(),
            "ended_at": None,
            "results_url": "https://elsewhere.example/results",
        }


def _openai_result(request: Request, fate: Fate, answer: Reply | Fault | None) -> dict[str, Any]:
    if answer is None:
        message = "This request could not be executed before the completion window expired."
        return {"response": None, "error": {"code": f"batch_{fate}", "message": message}}
    status = 200 if isinstance(answer, Reply) else answer.status
    body = openai_wire.render(request, answer) if isinstance(answer, Reply) else openai_wire.error(answer, "")
    response = {"status_code": status, "request_id": f"req_{request.number}", "body": body}
    return {"response": response, "error": None}


def _anthropic_result(request: Request, fate: Fate, answer: Reply | Fault | None) -> dict[str, Any]:
    if answer is None:
        return {"type": fate}
    if isinstance(answer, Fault):
        return {"type": "errored", "error": anthropic_wire.error(answer, f"req_{request.number}")}
    return {"type": "succeeded", "message": anthropic_wire.render(request, answer)}


def _is_output(line: dict[str, Any]) -> bool:
    return bool(line.get("response")) and line["response"]["status_code"] == 200


def _jsonl(lines: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)
