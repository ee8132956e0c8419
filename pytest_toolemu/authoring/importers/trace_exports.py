"""Translates exports of other projects.

Those of LangSmith, Langfuse, and OpenInference become attributes of OpenTelemetry's GenAI conventions; trajectories in
ATIF and logs of Inspect AI become requests to OpenAI.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from pytest_toolemu.authoring.importers.sources import objects, parsed
from pytest_toolemu.formats.yaml_document import too_deep

Json = dict[str, Any]

_MODEL, _TOOL = "model", "tool"
# By the members that name the kind: `run_type` of LangSmith, and `type` of Langfuse.
_KINDS: Final = {
    ("run_type", "llm"): _MODEL, ("run_type", "tool"): _TOOL, ("type", "GENERATION"): _MODEL, ("type", "TOOL"): _TOOL,
}  # fmt: skip
_CHILDREN: Final = ("child_runs", "runs", "observations", "data")
_ROLES: Final = {
    "human": "user", "HumanMessage": "user", "ai": "assistant", "AIMessage": "assistant", "AIMessageChunk": "assistant",
    "tool": "tool", "ToolMessage": "tool", "system": "system", "SystemMessage": "system",
}  # fmt: skip
# Members that contain messages, of requests and of replies.
_CONTAINERS: Final = ("messages", "message", "generations", "choices", "input", "output")
_MAX_PARTS: Final = 12
_ATTACHMENT: Final = "attachment://"


def exported_steps(entry: Json, trace: str = "") -> Iterator[tuple[str, str, Json]]:
    """Yield trace, start, and attributes of each request to a model and each executed tool in an export."""
    trace = str(entry.get("trace_id") or entry.get("traceId") or trace or entry.get("id") or "")
    for name in _CHILDREN:
        for child in objects(entry.get(name)):
            yield from exported_steps(child, trace)
    kind = next((kind for (name, value), kind in _KINDS.items() if entry.get(name) == value), "")
    start = str(entry.get("start_time") or entry.get("startTime") or "")
    given, made = (parsed(entry.get(f"{name}s", entry.get(name))) for name in ("input", "output"))
    if kind == _MODEL:
        tools = _member(given, "tools") or _member(entry, "extra", "invocation_params", "tools")
        yield trace, start, _model_attributes(given, made, tools)
    elif kind == _TOOL:
        failure = entry.get("statusMessage") or "error" if entry.get("level") == "ERROR" else ""
        yield trace, start, _tool_attributes(entry, given, made, str(entry.get("error") or failure))


def with_genai_names(attributes: Json) -> Json:
    """Return the attributes of a span by the GenAI conventions, if it has those of OpenInference."""
    if not any(str(key).startswith("openinference") for key in attributes):
        return attributes
    nested = _nested(attributes)
    kind = _member(nested, "openinference", "span", "kind")
    if kind == "LLM":
        tools = [_member(tool, "tool", "json_schema") for tool in objects(_member(nested, "llm", "tools"))]
        given, made = _member(nested, "llm", "input_messages"), _member(nested, "llm", "output_messages")
        return _model_attributes(given, made, tools)
    if kind == "TOOL":
        tool = {name: _member(nested, "tool", name) for name in ("name", "description")}
        given, made = (parsed(_member(nested, name, "value")) for name in ("input", "output"))
        return _tool_attributes({"id": _member(nested, "tool_call", "id"), **tool}, given, made, "")
    return {}


def is_conversation(value: Any) -> bool:
    """Return whether a value is a bare list of messages."""
    return bool(objects(value)) and all(isinstance(each, dict) and _is_message(each) for each in value)


def conversation_entries(value: Any) -> list[Any]:
    """Return the conversations in a list of messages, a trajectory in ATIF, or a log of Inspect AI, as requests.

    Return any other value as the only entry.
    """
    if is_conversation(value):
        return [{"messages": messages(value, "user")}]
    if not isinstance(value, dict):
        return [value]
    if str(value.get("schema_version")).startswith("ATIF-"):
        return [_atif_request(each) for each in (value, *objects(value.get("subagent_trajectories")))]
    samples = objects(value.get("samples")) if "eval" in value else [value] if "epoch" in value else []
    # The messages are converted recursively.
    return [sample if too_deep(sample) else _inspect_request(sample) for sample in samples] or [value]


def _atif_request(trajectory: Json) -> Json:
    said: list[Json] = []
    for step in objects(trajectory.get("steps")):
        role = "assistant" if step.get("source") == "agent" else step.get("source")
        calls = [_function(call, "tool_call_id", "function_name") for call in objects(step.get("tool_calls"))]
        said.append({"role": role, "content": step.get("message"), "tool_calls": calls})
        for result in objects(_member(step, "observation", "results")):
            call_id = result.get("source_call_id") or (calls[0]["id"] if len(calls) == 1 else None)
            status = "error" if _member(result, "extra", "is_error") else None
            said.append({"role": "tool", "tool_call_id": call_id, "content": result.get("content"), "status": status})
    return {"messages": said, "tools": _member(trajectory, "agent", "tool_definitions")}


def _inspect_request(sample: Json) -> Json:
    attachments = sample.get("attachments")
    whole = partial(_with_attachments, attachments if isinstance(attachments, dict) else {})
    said: list[Json] = []
    for message in objects(whole(sample.get("messages"))):
        calls = [_function(call, "id", "function") for call in objects(message.get("tool_calls"))]
        error = _member(message, "error", "message")
        content, status = message.get("content") or error, "error" if error else None
        said.append({**message, "content": content, "tool_calls": calls, "status": status})
    events = objects(sample.get("events"))
    tools = {str(tool.get("name")): tool for event in events for tool in objects(event.get("tools"))}
    return {"messages": said, "tools": objects(_member(sample, "metadata", "tools")) or whole([*tools.values()])}


def _with_attachments(attachments: Json, value: Any) -> Any:
    """Return a value with its long texts, which Inspect AI stores once for each sample."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    if isinstance(value, dict):
        return {key: _with_attachments(attachments, part) for key, part in value.items()}
    return [_with_attachments(attachments, part) for part in value] if isinstance(value, list) else value


def _is_message(value: Json) -> bool:
    return bool(_role(value)) or str(value.get("type")).startswith("function_call")


def messages(value: Any, role: str) -> list[Json]:
    """Return the messages in a part of an export, as in requests to OpenAI; ``role`` is for texts without one."""
    value = parsed(value)
    if isinstance(value, str):
        return [{"role": role, "content": value}] if value else []
    if too_deep(value):
        return []
    if isinstance(value, list):
        return [message for each in value for message in messages(each, role)]
    if not isinstance(value, dict):
        return []
    if _is_message(value) or "content" in value or "tool_calls" in value:
        return [_message(value, _role(value) or role)]
    return messages(next((value[name] for name in _CONTAINERS if value.get(name)), None), role)


def _role(value: Json) -> str:
    """Return the role of a message; LangChain names it by a class or a type."""
    name = value.get("id")
    name = value.get("role") or (name[-1] if isinstance(name, list) and name else value.get("type"))
    return _ROLES.get(str(name), str(value.get("role") or ""))


def _message(value: Json, role: str) -> Json:
    if str(value.get("type")).startswith("function_call"):
        return value
    body: Json = next((value[name] for name in ("kwargs", "data") if isinstance(value.get(name), dict)), value)
    calls = objects(body.get("tool_calls")) or objects(_member(body, "additional_kwargs", "tool_calls"))
    content = [_member(part, "message_content") for part in objects(body.get("contents"))] or body.get("content")
    if calls and isinstance(content, list):  # LangChain repeats the calls of Anthropic there
        content = [part for part in content if _member(part, "type") != "tool_use"]
    return {**body, "role": role, "content": content, "tool_calls": [_call(call) for call in calls]}


def _call(call: Json) -> Json:
    call = call["tool_call"] if isinstance(call.get("tool_call"), dict) else call
    if "function" in call:
        return call
    return {"id": call.get("id"), "function": {"name": call.get("name"), "arguments": call.get("args")}}


def _function(call: Json, call_id: str, name: str) -> Json:
    arguments = call.get("arguments")
    unreadable = _member(arguments, "unreadable_arguments") or call.get("parse_error")
    return {"id": call.get(call_id), "function": {"name": call.get(name), "arguments": unreadable or arguments}}


def _model_attributes(given: Any, made: Any, tools: Any) -> Json:
    said = messages(given, "user")
    # Langfuse's integration of LangChain appends the definitions of the tools to the messages.
    offered = [each["content"] for each in said if isinstance(each.get("content"), dict)]
    return {
        "gen_ai.input.messages": [each for each in said if not isinstance(each.get("content"), dict)],
        "gen_ai.output.messages": messages(made, "assistant"),
        "gen_ai.tool.definitions": [*(tools if isinstance(tools, list) else ()), *offered],
    }


def _tool_attributes(tool: Json, given: Any, made: Any, error: str) -> Json:
    if isinstance(given, dict) and given.keys() == {"input"}:
        given = parsed(given["input"])
    if isinstance(given, str):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            given = ast.literal_eval(given)  # LangChain passes the text of a Python object on
    made = made["output"] if isinstance(made, dict) and made.keys() == {"output"} else made
    call_id = tool.get("id") if "run_type" not in tool and "type" not in tool else None
    if isinstance(made, dict) and _role(made) == "tool":
        reply = _message(made, "tool")
        made, call_id = parsed(reply["content"]), reply.get("tool_call_id")
        error = error or ("error" if reply.get("status") == "error" else "")
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool.get("name"),
        "gen_ai.tool.description": tool.get("description"),
        **({"gen_ai.tool.call.id": call_id} if call_id else {}),
        "gen_ai.tool.call.arguments": given,
        **({} if made is None else {"gen_ai.tool.call.result": made}),
        **({"error.type": error} if error else {}),
    }


def _member(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _nested(attributes: Json) -> Json:
    """Return flat attributes such as ``llm.input_messages.0.message.role`` as objects and lists."""
    root: Json = {}
    for key, value in attributes.items():
        *path, last = str(key).split(".", _MAX_PARTS)
        node = root
        for part in path:
            child = node.get(part)
            node[part] = node = child if isinstance(child, dict) else {}
        node[last] = value
    return {key: _listed(value) for key, value in root.items()}


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdecimal() for key in value):
        return [_listed(part) for _, part in sorted(value.items(), key=lambda item: (len(item[0]), item[0]))]
    return {key: _listed(part) for key, part in value.items()}
