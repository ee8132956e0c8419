"""What a service is sent, and where its answer is: its own JSON, the Responses API of OpenAI, or A2A 1.x."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pytest_toolemu.agents.programs.agent_file import AgentFile
from pytest_toolemu.agents.programs.answers import UsagePaths, shown, text_at
from pytest_toolemu.agents.programs.placeholders import filled
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import AgentProgramError

Send = Callable[[Any], Awaitable[Any]]
"""Sends a JSON value to the service, and returns the JSON value of the response."""

_POLL_SECONDS: Final = 0.5
_WORKING: Final = ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
_ASKING: Final = "TASK_STATE_INPUT_REQUIRED"
_DONE: Final = "TASK_STATE_COMPLETED"


class ServiceConversation(Protocol):
    """The messages between the user and the agent of one run."""

    @property
    def continues(self) -> bool:
        """Whether the agent can act on a reply of the user."""
        ...

    async def answer_to(self, message: str) -> str:
        """Return what the agent says to the task, or to a reply. AgentProgramError if it says nothing usable."""
        ...


@dataclass
class ChatConversation:
    """The service's own JSON. ``values`` are those of the placeholders, by name."""

    file: AgentFile
    values: Mapping[str, str]
    toolbox: Toolbox
    send: Send

    @property
    def continues(self) -> bool:
        """Whether the service keeps the conversation of a session."""
        return self.file.keeps_session

    async def answer_to(self, message: str) -> str:
        """Send the body of the file with the message as its task, and read the answer at its path."""
        value = await self.send(filled(self.file.body, {**self.values, "task": message}))
        if self.file.usage is not None:
            self.file.usage.report(value, self.toolbox)
        return text_at(value, self.file.answer or "", f"the answer of {self.file.url}")


@dataclass
class ResponsesConversation:
    """An endpoint of the Responses API, which calls the tools itself, at the MCP address."""

    file: AgentFile
    values: Mapping[str, str]
    toolbox: Toolbox
    send: Send
    continues: bool = True
    _previous: dict[str, Any] = field(default_factory=dict)

    async def answer_to(self, message: str) -> str:
        """Ask for a response, after the previous one if there is one."""
        tools = {"type": "mcp", "server_label": "tools", "require_approval": "never"}
        tools["server_url"] = self.values["mcp_url"]
        value = await self.send({"model": self.file.model, "input": message, "tools": [tools], **self._previous})
        self._usage.report(value, self.toolbox)
        if not isinstance(value, dict) or value.get("status") in ("failed", "cancelled", "incomplete"):
            raise AgentProgramError(f"{self.file.responses} gave no answer: {_reason(value)}")
        self._previous = {"previous_response_id": value.get("id")}
        outputs = [item for item in _listed(value.get("output")) if item.get("type") == "message"]
        parts = [part for item in outputs[-1:] for part in _listed(item.get("content"))]
        return "\n".join(str(part["text"]) for part in parts if part.get("type") == "output_text" and "text" in part)

    @property
    def _usage(self) -> UsagePaths:
        return UsagePaths(
            model=f"openai:{self.file.model}@{(self.file.responses or '').removesuffix('/responses')}",
            input="usage.input_tokens",
            output="usage.output_tokens",
            cached="usage.input_tokens_details.cached_tokens",
        )


@dataclass
class A2aConversation:
    """An agent that speaks A2A. The address of the tools is in the metadata of each message, as ``mcp_url``."""

    file: AgentFile
    values: Mapping[str, str]
    toolbox: Toolbox
    send: Send
    continues: bool = True
    _ids: dict[str, Any] = field(default_factory=dict)
    _count: int = 0

    async def answer_to(self, message: str) -> str:
        """Send a message, and wait until its task is done, or until the agent asks something."""
        self._count += 1
        content = {
            "messageId": f"{self.values['session']}-{self._count}",
            "role": "ROLE_USER",
            "parts": [{"text": message}],
            "metadata": {"mcp_url": self.values["mcp_url"]},
            **self._ids,
        }
        result = await self._call("SendMessage", {"message": content})
        if isinstance(reply := result.get("message"), dict):
            self._ids = {"contextId": reply["contextId"]} if reply.get("contextId") else {}
            return _text(reply)
        task = result["task"] if isinstance(result.get("task"), dict) else result
        while (state := _state(task)) in _WORKING:
            await asyncio.sleep(_POLL_SECONDS)
            task = await self._call("GetTask", {"id": task.get("id")})
        if state not in (_ASKING, _DONE):
            reason = f": {shown(status_text)}" if (status_text := _status_text(task)) else ""
            raise AgentProgramError(f"{self.file.a2a} ended the task with {state or 'no state'}{reason}")
        ids = {"contextId": task.get("contextId"), "taskId": task.get("id") if state == _ASKING else None}
        self._ids = {name: value for name, value in ids.items() if value}
        artifacts = [text for artifact in _listed(task.get("artifacts")) if (text := _text(artifact))]
        if state == _ASKING or not artifacts:
            artifacts.append(_status_text(task))
        return "\n".join(filter(None, artifacts))

    async def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        value = await self.send({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        if isinstance(value, dict) and isinstance(result := value.get("result"), dict):
            return result
        raise AgentProgramError(f"{self.file.a2a} answered with an error: {_reason(value)}")


CONVERSATIONS: Final[dict[str, Callable[[AgentFile, Mapping[str, str], Toolbox, Send], ServiceConversation]]] = {
    "url": ChatConversation,
    "responses": ResponsesConversation,
    "a2a": A2aConversation,
}
"""The protocol of each kind of service, by its key in an agent file."""

PROTOCOL_HEADERS: Final[dict[str, dict[str, str]]] = {"url": {}, "responses": {}, "a2a": {"A2A-Version": "1.0"}}
"""The headers that a protocol requires, by its key in an agent file."""


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
