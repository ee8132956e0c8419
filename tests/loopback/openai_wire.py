"""The formats of OpenAI's Chat Completions API and model list, as of SDK 3.52; vLLM's server uses the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from tests.loopback import rules
from tests.loopback.records import Call, Content, Fault, Message, RefusedError, Reply, Request, Tool, Usage

REQUEST_ID: Final = "x-request-id"
_STOPS: Final = {"stop": "stop", "calls": "tool_calls", "length": "length", "refusal": "content_filter"}
_ERRORS: Final = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


def read(body: Any, headers: dict[str, str]) -> Content:
    """Return the request in provider-neutral form. Raise RefusedError if the real service would answer 400."""
    del headers  # Chat Completions puts nothing into headers
    model = rules.field(body, "model", str)
    messages = tuple(_message(item) for item in rules.field(body, "messages", list))
    if body.get("stream"):
        raise RefusedError("stream: the loopback server does not stream; ask without it")
    rules.check_answered(messages)
    tools = tuple(_tool(item) for item in body.get("tools") or ())
    rules.check_distinct(tools)
    name, schema = _schema(body.get("response_format") or {})
    return Content(model, messages, tools, name, schema)


def render(request: Request, reply: Reply) -> Any:
    """Return the body of a chat completion."""
    calls = [
        {"id": call.id or f"call_{request.number}_{index}", "type": "function", "function": _function(call)}
        for index, call in enumerate(reply.calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": reply.refusal or None}
    if calls:
        message["tool_calls"] = calls
    # A refusal in its own field has the stop reason of any answer; only the content filter has its own.
    reason = reply.stop or ("stop" if reply.refusal else reply.reason)
    return {
        "id": f"chatcmpl-{request.number}",
        "object": "chat.completion",
        "created": 1_767_225_600,
        "model": reply.model or request.model,
        "choices": [{"index": 0, "message": message, "finish_reason": _STOPS.get(reason, reason), "logprobs": None}],
        "usage": _usage(reply.usage),
        "system_fingerprint": "fp_loopback",
    }


def error(fault: Fault, request_id: str) -> Any:
    """Return the body of an error; OpenAI's request id is in the header only."""
    del request_id
    kind, code = _ERRORS.get(fault.status, ("server_error", None))
    return {"error": {"message": fault.message, "type": kind, "param": None, "code": fault.code or code}}


def model(name: str) -> Any:
    """Return the body of one model."""
    return {"id": name, "object": "model", "created": 1_767_225_600, "owned_by": "loopback"}


def models(names: Sequence[str]) -> Any:
    """Return the body of the model list."""
    return {"object": "list", "data": [model(name) for name in names]}


def _message(item: Any) -> Message:
    role = rules.field(item, "role", str)
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise RefusedError(f"messages: {role!r} is no role")
    calls = tuple(_call(call) for call in item.get("tool_calls") or ())
    content = item.get("content")
    if content is None and not (calls or item.get("refusal")):
        raise RefusedError(f"messages: a message of role {role!r} needs content")
    call_id = rules.field(item, "tool_call_id", str) if role == "tool" else ""
    return Message("system" if role == "developer" else role, _text(content), calls, call_id)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(rules.field(part, "text", str) for part in content)
    if not isinstance(content, str | None):
        raise RefusedError(f"messages: content must be a string or a list of parts, not {content!r}")
    return content or ""


def _call(item: Any) -> Call:
    function = rules.field(item, "function", dict)
    raw = function.get("arguments")
    if not isinstance(raw, str):
        raise RefusedError(f"tool_calls: arguments must be a string, not {raw!r}")
    try:
        arguments = json.loads(raw)
    except ValueError:
        arguments = raw
    return Call(rules.valid_name(function.get("name", ""), "tool_calls"), arguments, rules.field(item, "id", str))


def _tool(item: Any) -> Tool:
    function = rules.field(item, "function", dict)
    name = rules.valid_name(rules.field(function, "name", str), "tools")
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    strict = bool(function.get("strict"))
    if strict:
        rules.check_closed(parameters, f"Invalid schema for function {name!r}", all_required=True)
    return Tool(name, function.get("description", ""), parameters, strict)


def _schema(response_format: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    if response_format.get("type") != "json_schema":
        return "", None
    described = rules.field(response_format, "json_schema", dict)
    name = rules.valid_name(rules.field(described, "name", str), "response_format")
    schema: dict[str, Any] = rules.field(described, "schema", dict)
    if described.get("strict"):
        rules.check_closed(schema, f"Invalid schema for response_format {name!r}", all_required=True)
    return name, schema


def _function(call: Call) -> dict[str, str]:
    raw = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    return {"name": call.name, "arguments": raw}


def _usage(usage: Usage | None) -> Any:
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
