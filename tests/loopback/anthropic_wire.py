"""The formats of Anthropic's Messages API and model list, as of SDK 2.11."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.loopback import rules
from tests.loopback.records import Call, Content, Fault, Message, RefusedError, Reply, Request, Tool, Usage

REQUEST_ID: Final = "request-id"
_OLD_VERSION: Final = "2023-06-01"
_STOPS: Final = {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens"}
_ERRORS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def read(body: Any, headers: dict[str, str]) -> Content:
    """Return the request in provider-neutral form. Raise RefusedError if the real service would answer 400."""
    version = headers.get("anthropic-version")
    if version is None:
        raise RefusedError("anthropic-version: header is required")
    model = rules.field(body, "model", str)
    rules.field(body, "max_tokens", int)
    for name in ("temperature", "top_p", "top_k"):
        if name in body and version > _OLD_VERSION:
            raise RefusedError(f"{name}: not accepted by version {version} of the API; leave it out")
    if body.get("stream"):
        raise RefusedError("stream: the loopback server does not stream; ask without it")
    messages = (*_system(body.get("system")), *_conversation(rules.field(body, "messages", list)))
    rules.check_answered(messages)
    tools = tuple(_tool(item) for item in body.get("tools") or ())
    rules.check_distinct(tools)
    name, schema = _schema((body.get("output_config") or {}).get("format") or {})
    return Content(model, messages, tools, name, schema)


def render(request: Request, reply: Reply) -> Any:
    """Return the body of a message."""
    blocks: list[dict[str, Any]] = []
    if reply.thinking:
        blocks.append({"type": "thinking", "thinking": reply.thinking, "signature": _signature(reply.thinking)})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for index, call in enumerate(reply.calls):
        call_id = call.id or f"toolu_{request.number}_{index}"
        blocks.append({"type": "tool_use", "id": call_id, "name": call.name, "input": call.arguments})
    details = {"type": "refusal", "category": None, "explanation": reply.refusal or None}
    return {
        "id": f"msg_{request.number}",
        "type": "message",
        "role": "assistant",
        "model": reply.model or request.model,
        "content": blocks,
        "stop_reason": _STOPS.get(reply.reason, reply.reason),
        "stop_sequence": None,
        "stop_details": details if reply.reason == "refusal" else None,
        "usage": _usage(reply.usage),
    }


def error(fault: Fault, request_id: str) -> Any:
    """Return the body of an error."""
    kind = fault.code or _ERRORS.get(fault.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": fault.message}, "request_id": request_id}


def model(name: str) -> Any:
    """Return the body of one model."""
    born = "2026-01-01T00:00:00Z"
    return {"type": "model", "id": name, "display_name": name, "created_at": born, "lifecycle": "active"}


def models(names: Sequence[str]) -> Any:
    """Return the body of the model list, all on one page."""
    ends = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
    return {"data": [model(name) for name in names], "has_more": False, **ends}


def _system(system: Any) -> Iterator[Message]:
    if system:
        yield Message("system", "".join(block["text"] for block in _blocks(system)))


def _conversation(items: list[Any]) -> Iterator[Message]:
    """Yield the messages. A user turn may contain several tool results and texts: each becomes a message, in order."""
    for index, item in enumerate(items):
        role = rules.field(item, "role", str)
        if role not in ("system", "user", "assistant") or (index == 0 and role == "assistant"):
            raise RefusedError(f"messages.{index}: the role {role!r} may not stand here")
        blocks = _blocks(rules.field(item, "content", object))
        if role == "system":
            yield from _system(blocks)
        elif role == "assistant":
            yield _assistant_message(blocks, index)
        else:
            yield from _user_messages(blocks, index)


def _assistant_message(blocks: list[Any], index: int) -> Message:
    text, calls = "", []
    for block in blocks:
        match block.get("type"):
            case "text":
                text += block["text"]
            case "tool_use":
                if not isinstance(block.get("input"), dict):
                    raise RefusedError(
                        f"messages.{index}: tool_use.input must be an object, not {block.get('input')!r}"
                    )
                name = rules.valid_name(block.get("name", ""), f"messages.{index}")
                calls.append(Call(name, block["input"], rules.field(block, "id", str)))
            case "thinking":
                if block.get("signature") != _signature(block.get("thinking", "")):
                    raise RefusedError(f"messages.{index}: a thinking block must be sent back as it came")
            case kind:
                raise RefusedError(f"messages.{index}: a block of type {kind!r} may not stand here")
    return Message("assistant", text, tuple(calls))


def _user_messages(blocks: list[Any], index: int) -> Iterator[Message]:
    for block in blocks:
        match block.get("type"):
            case "text":
                yield Message("user", block["text"])
            case "tool_result":
                text = "".join(part["text"] for part in _blocks(block.get("content") or []))
                yield Message("tool", text, call_id=rules.field(block, "tool_use_id", str))
            case kind:
                raise RefusedError(f"messages.{index}: a block of type {kind!r} may not stand here")


def _blocks(content: Any) -> list[Any]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise RefusedError(f"content: a string or a list of blocks is required, not {content!r}")
    for block in blocks:
        if block.get("type") == "text":
            rules.field(block, "text", str)
    return blocks


def _tool(item: Any) -> Tool:
    name = rules.valid_name(rules.field(item, "name", str), "tools")
    parameters = rules.field(item, "input_schema", dict)
    if parameters.get("type") != "object":
        raise RefusedError(f"tools: input_schema.type of {name!r} must be 'object'")
    strict = bool(item.get("strict"))
    if strict:
        rules.check_closed(parameters, f"tools.{name}.input_schema", all_required=False)
        rules.check_enforceable(parameters, f"tools.{name}.input_schema")
    return Tool(name, item.get("description", ""), parameters, strict)


def _schema(output_format: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    if output_format.get("type") != "json_schema":
        return "", None
    schema: dict[str, Any] = rules.field(output_format, "schema", dict)
    rules.check_closed(schema, "output_config.format.schema", all_required=False)
    rules.check_enforceable(schema, "output_config.format.schema")
    return str(schema.get("title", "")), schema


def _signature(thinking: str) -> str:
    return hashlib.sha256(thinking.encode()).hexdigest()


def _usage(usage: Usage | None) -> Any:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input - usage.cached - usage.cache_written,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.cache_written,
        "cache_creation": {"ephemeral_5m_input_tokens": usage.cache_written, "ephemeral_1h_input_tokens": 0},
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
        "service_tier": "standard",
    }
