"""What a service is sent, and where its answer is: its own JSON, the Responses API of OpenAI, or A2A 1.x."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from pytest_toolemu.agents.programs.agent_file import AgentFile
from pytest_toolemu.agents.programs.answers import UsagePaths, shown, text_at
from pytest_toolemu.agents.programs.placeholders import filled
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import AgentProgramError

Send = Callable[[Any], Awaitable[Any]]
"""Sends a JSON value to the service, and returns the JSON value of the response."""
Conversation = Callable[[AgentFile, Mapping[str, str], Toolbox, Send], Awaitable[str]]
"""Gets the answer of the agent to a task, whose placeholders are given by name."""

_POLL_SECONDS: Final = 0.5
_WORKING: Final = ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
_ANSWERED: Final = ("TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED")


async def chat(file: AgentFile, values: Mapping[str, str], toolbox: Toolbox, send: Send) -> str:
    """Send the body of the file, and read the answer at its path."""
    value = await send(filled(file.body, values))
    if file.usage is not None:
        file.usage.report(value, toolbox)
    return text_at(value, file.answer or "", f"the answer of {file.url}")


async def responses(file: AgentFile, values: Mapping[str, str], toolbox: Toolbox, send: Send) -> str:
    """Ask an endpoint that calls the tools itself, at the MCP address."""
    tools = {"type": "mcp", "server_label": "tools", "server_url": values["mcp_url"], "require_approval": "never"}
    value = await send({"model": file.model, "input": values["task"], "tools": [tools]})
    usage = UsagePaths(
        model=f"openai:{file.model}@{(file.responses or '').removesuffix('/responses')}",
        input="usage.input_tokens",
        output="usage.output_tokens",
        cached="usage.input_tokens_details.cached_tokens",
    )
    usage.report(value, toolbox)
    if not isinstance(value, dict) or value.get("status") in ("failed", "cancelled", "incomplete"):
        raise AgentProgramError(f"{file.responses} gave no answer: {_reason(value)}")
    outputs = [item for item in _listed(value.get("output")) if item.get("type") == "message"]
    parts = [part for item in outputs[-1:] for part in _listed(item.get("content"))]
    return "\n".join(str(part["text"]) for part in parts if part.get("type") == "output_text" and "text" in part)


async def a2a(file: AgentFile, values: Mapping[str, str], toolbox: Toolbox, send: Send) -> str:
    """Send a message, and wait until its task is done. A question of the agent is its answer, too.

    The address of the tools is in the metadata of the message, as ``mcp_url``.
    """
    del toolbox
    message = {
        "messageId": values["session"],
        "role": "ROLE_USER",
        "parts": [{"text": values["task"]}],
        "metadata": {"mcp_url": values["mcp_url"]},
    }
    result = _result(file, await send(_call("SendMessage", {"message": message})))
    if "message" in result:
        return _text(result["message"])
    task = result["task"] if isinstance(result.get("task"), dict) else result
    while (state := _state(task)) in _WORKING:
        await asyncio.sleep(_POLL_SECONDS)
        task = _result(file, await send(_call("GetTask", {"id": task.get("id")})))
    if state not in _ANSWERED:
        reason = f": {shown(status_text)}" if (status_text := _status_text(task)) else ""
        raise AgentProgramError(f"{file.a2a} ended the task with {state or 'no state'}{reason}")
    artifacts = [_text(artifact) for artifact in _listed(task.get("artifacts"))]
    return "\n".join(filter(None, artifacts)) or _status_text(task)


CONVERSATIONS: Final[dict[str, Conversation]] = {"url": chat, "responses": responses, "a2a": a2a}
"""The protocol of each kind of service, by its key in an agent file."""

PROTOCOL_HEADERS: Final[dict[str, dict[str, str]]] = {"url": {}, "responses": {}, "a2a": {"A2A-Version": "1.0"}}
"""The headers that a protocol requires, by its key in an agent file."""


def _call(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _result(file: AgentFile, value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and isinstance(result := value.get("result"), dict):
        return result
    raise AgentProgramError(f"{file.a2a} answered with an error: {_reason(value)}")


def _reason(value: Any) -> str:
    """Return what a response says about its failure."""
    for key in ("error", "incomplete_details"):
        part = value.get(key) if isinstance(value, dict) else None
        if isinstance(part, dict):
            return shown(str(part.get("message") or part.get("reason") or part))
    return shown(str(value))


def _state(task: dict[str, Any]) -> str:
    status = task.get("status")
    return str(status.get("state", "")) if isinstance(status, dict) else ""


def _status_text(task: dict[str, Any]) -> str:
    status = task.get("status")
    return _text(status.get("message")) if isinstance(status, dict) else ""


def _text(holder: Any) -> str:
    """Return the text parts of a message or an artifact."""
    parts = _listed(holder.get("parts")) if isinstance(holder, dict) else []
    return "\n".join(str(part["text"]) for part in parts if "text" in part)


def _listed(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
