"""The reply of a provider, whole or as a stream of events, in the formats of OpenAI and Anthropic."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from pytest_toolemu.core.messages import Reply, Usage
from pytest_toolemu.core.toolbox import printable

EVENTS: Final = "text/event-stream"
_TYPE: Final = "content_type"
_BODY: Final = "body"
_FAILED: Final = "the response failed"


def reply_of(body: bytes, content_type: str, request_id: str | None) -> Reply:
    """Return a reply with text, model, and tokens. ``native`` keeps all of it, so that it can be replayed.

    The tokens are unknown if the provider does not state them.
    """
    text = body.decode("utf-8", "replace")
    values = list(_values(text, content_type))
    usage: dict[str, Any] = {}
    model = ""
    for holder in (part for value in values for part in _holders(value)):
        if isinstance(holder.get("usage"), dict):  # later events complete the counts of earlier ones
            usage |= {name: count for name, count in holder["usage"].items() if count is not None}
        model = model or str(holder.get("model") or "")
    return Reply(
        text=printable("".join(part for value in values for part in _texts(value))),
        usage=_usage(usage),
        model=printable(model),
        request_id=request_id,
        native=({_TYPE: content_type, _BODY: text},),
    )


def error_of(body: bytes, content_type: str) -> str:
    """Return the error that a reply with status 200 contains, or with which its stream ended; empty if none."""
    for value in _values(body.decode("utf-8", "replace"), content_type):
        response = value.get("response")
        error = value.get("error")  # of Anthropic, of a chunk in OpenAI's format, and of routers in a whole reply
        if value.get("type") == "response.failed" and isinstance(response, dict):
            error = response.get("error") or _FAILED
        if value.get("object") == "response" and value.get("status") == "failed":
            error = error or _FAILED
        if value.get("type") == "error":  # of OpenAI's Responses API, which has the members in the event itself
            error = error or {name: part for name, part in value.items() if name != "type"}
        for choice in _objects(value.get("choices")):  # of routers, beside the part of a reply that was written
            error = error or choice.get("error") or (_FAILED if choice.get("finish_reason") == "error" else None)
        if error:
            return printable(error if isinstance(error, str) else json.dumps(error, ensure_ascii=False))
    return ""


def wire_of(reply: Reply) -> tuple[str, bytes] | None:
    """Return content type and body of a recorded reply; None if it was not recorded here."""
    for part in reply.native or ():
        if isinstance(part.get(_TYPE), str) and isinstance(part.get(_BODY), str):
            return part[_TYPE], part[_BODY].encode()
    return None


def _values(text: str, content_type: str) -> Iterator[dict[str, Any]]:
    lines = [text]
    if content_type.startswith(EVENTS):  # whose lines end in these three ways only, unlike those of splitlines()
        lines = [line[5:] for line in re.split(r"\r\n|\r|\n", text) if line.startswith("data:")]
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):  # such as the [DONE] at the end of a stream
            continue
        if isinstance(value, dict):
            yield value


def _holders(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects that can state model and usage: the reply, and what the first or last event wraps."""
    for holder in (value, value.get("message"), value.get("response")):
        if isinstance(holder, dict):
            yield holder


def _texts(value: dict[str, Any]) -> Iterator[str]:
    """Yield the text that a whole reply or one event of a stream contains."""
    for choice in _objects(value.get("choices")):
        for holder in (choice, choice.get("message"), choice.get("delta")):
            if isinstance(holder, dict):
                yield from (holder[name] for name in ("text", "content") if isinstance(holder.get(name), str))
    for block in _objects(value.get("content")):
        if isinstance(block.get("text"), str):
            yield block["text"]
    for item in _objects(value.get("output")):
        yield from (part["text"] for part in _objects(item.get("content")) if isinstance(part.get("text"), str))
    delta = value.get("delta")
    if isinstance(delta, dict) and isinstance(delta.get("text"), str):
        yield delta["text"]
    if value.get("type") == "response.output_text.delta" and isinstance(delta, str):
        yield delta


def _usage(counts: dict[str, Any]) -> Usage:
    """Return the tokens that OpenAI (Chat, Responses) or Anthropic states. Anthropic's input has no cached tokens."""
    known = {name: count for name, count in counts.items() if type(count) is int and count >= 0}
    prompt = known.get("input_tokens", known.get("prompt_tokens"))
    output = known.get("output_tokens", known.get("completion_tokens"))
    if prompt is None or output is None:
        return Usage(calls=1, unknown=1)
    read, written = known.get("cache_read_input_tokens", 0), known.get("cache_creation_input_tokens", 0)
    details = counts.get("prompt_tokens_details") or counts.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return Usage(
        input=prompt + read + written,
        output=output,
        cached=min(prompt + read, read or (cached if type(cached) is int else 0)),
        cache_written=written,
        calls=1,
    )


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
