"""An agent behind HTTP: it gets the task and the MCP address of its tools, and returns its answer."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from pytest_toolemu.agents.mcp import check_port, served, served_at
from pytest_toolemu.agents.programs.agent_file import (
    AgentFile,
    UsagePaths,
    case_values,
    filled,
    new_session,
    parsed,
    shown,
    text_at,
)
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import AgentProgramError, UsageError
from pytest_toolemu.formats.text import truncated

MAX_ANSWER: Final = 1_000_000
"""Bytes of a service's answer."""

_CONNECT_SECONDS: Final = 10.0
_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 30.0
_POLL_SECONDS: Final = 0.5
_SHOWN: Final = 200
_HEADER: Final = re.compile(r"[\t -~\x80-\xff]*")
# Too many requests, and service unavailable: statuses of a request that was turned away.
_TURNED_AWAY: Final = (429, 503)
_WORKING: Final = ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
_ASKING: Final = "TASK_STATE_INPUT_REQUIRED"
_DONE: Final = "TASK_STATE_COMPLETED"


class ServiceUnreachableError(AgentProgramError):
    """The service that is the agent cannot be reached, so all further cases would fail as well."""


@dataclass(frozen=True)
class ServiceAgent:
    """An agent that sends each task to a service. ``name`` is what messages call it.

    ``file`` has no variables of the environment left; they are in ``headers`` and ``body``.
    """

    name: str
    file: AgentFile
    identity: dict[str, Any]

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:
        """Return the answer of the service. Raise AgentProgramError if there is none."""
        session = new_session()
        port, path, trace = self.file.tools_port, self.file.tools_path, session if self.file.passes_traceparent else ""
        async with served(toolbox) if port is None or path is None else served_at(port, path, toolbox, trace) as url:
            values = case_values(task, toolbox, url, session)
            conversation = _CONVERSATIONS[self.file.kind](self, values, toolbox)
            answer = await self._answer(conversation, task)
            # Only a service with JSON of its own may be unable to continue a conversation.
            continues = self.file.kind != "url" or self.file.keeps_session
            while continues and (reply := await toolbox.say(answer)) is not None:
                answer = await self._answer(conversation, reply)
        return answer

    async def _answer(self, conversation: ServiceConversation, message: str) -> str:
        if answer := (await conversation.answer_to(message)).strip():
            return answer
        raise AgentProgramError(f"{self.url} returned an empty answer")

    @property
    def url(self) -> str:
        """The URL of the service."""
        return str(getattr(self.file, self.file.kind))

    @property
    def note(self) -> str:
        """What a session says about the agent in its header; empty for nothing."""
        if self.file.tools_port is None:
            return ""
        address = f"its service gets all tools at port {self.file.tools_port} (tools_port)"
        if self.file.passes_traceparent:
            return f"{self.name}: {address}, and states with the traceparent header which case a call belongs to"
        return f"{self.name}: its cases run one at a time, because {address}"

    async def check(self) -> None:
        """Raise UsageError if the service cannot be reached, or its fixed port cannot be used."""
        if self.file.tools_port is not None:
            check_port(self.file.tools_port, self.name)
        if reason := await _why_unreachable(self.url):
            raise UsageError(
                f"agent {self.name!r}: {self.url} cannot be reached ({reason}); start the service, or correct the URL"
            )


# ---- the protocols of services


@dataclass
class ServiceConversation:
    """The messages between the user and the agent of one run. ``values`` are those of the placeholders, by name."""

    agent: ServiceAgent
    values: Mapping[str, str]
    toolbox: Toolbox
    _state: dict[str, Any] = field(default_factory=dict)
    """What a later message repeats, so that the service continues the conversation."""

    async def answer_to(self, message: str) -> str:
        """Return what the agent says to the task, or to a reply. AgentProgramError if it says nothing usable."""
        raise NotImplementedError

    async def _send(self, body: Any, **headers: str) -> Any:
        """Send a JSON value, and return the JSON value of the response."""
        session = self.values["session"]
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            # Instrumented services pass it on, so their logs can be joined with the records of the run.
            "traceparent": f"00-{session}-{session[:16]}-01",
            **headers,
            **filled(self.agent.file.headers, self.values),
        }
        trajectory = self.toolbox.trajectory
        trajectory.traceparent = headers["traceparent"]
        return await post(self.agent.url, headers, body, self.agent.file.retries, lambda: not trajectory.steps)


class ChatConversation(ServiceConversation):
    """The service's own JSON."""

    async def answer_to(self, message: str) -> str:
        """Send the body of the file with the message as its task, and read the answer at its path."""
        file = self.agent.file
        value = await self._send(filled(file.body, {**self.values, "task": message}))
        if file.usage is not None:
            file.usage.report(value, self.toolbox)
        return text_at(value, file.answer or "", f"the answer of {file.url}")


class ResponsesConversation(ServiceConversation):
    """An endpoint of the Responses API, which calls the tools itself, at the MCP address."""

    async def answer_to(self, message: str) -> str:
        """Ask for a response, after the previous one if there is one."""
        url, model = self.agent.url, self.agent.file.model
        tools = {"type": "mcp", "server_label": "tools", "require_approval": "never"}
        tools["server_url"] = self.values["mcp_url"]
        value = await self._send({"model": model, "input": message, "tools": [tools], **self._state})
        usage = UsagePaths(
            model=f"openai:{model}@{url.removesuffix('/responses')}",
            input="usage.input_tokens",
            output="usage.output_tokens",
            cached="usage.input_tokens_details.cached_tokens",
        )
        usage.report(value, self.toolbox)
        if not isinstance(value, dict) or value.get("status") in ("failed", "cancelled", "incomplete"):
            raise AgentProgramError(f"{url} gave no answer: {_reason(value)}")
        self._state = {"previous_response_id": value.get("id")}
        outputs = [item for item in _listed(value.get("output")) if item.get("type") == "message"]
        parts = [part for item in outputs[-1:] for part in _listed(item.get("content"))]
        return "\n".join(str(part["text"]) for part in parts if part.get("type") == "output_text" and "text" in part)


class A2aConversation(ServiceConversation):
    """An agent that speaks A2A. The address of the tools is in the metadata of each message, as ``mcp_url``."""

    _count: int = 0

    async def answer_to(self, message: str) -> str:
        """Send a message, and wait until its task is done, or until the agent asks something."""
        self._count += 1
        content = {
            "messageId": f"{self.values['session']}-{self._count}",
            "role": "ROLE_USER",
            "parts": [{"text": message}],
            "metadata": {"mcp_url": self.values["mcp_url"]},
            **self._state,
        }
        result = await self._call("SendMessage", {"message": content})
        if isinstance(reply := result.get("message"), dict):
            self._state = {"contextId": reply["contextId"]} if reply.get("contextId") else {}
            return _text(reply)
        task = _object(result.get("task")) or result
        while (state := str(_object(task.get("status")).get("state", ""))) in _WORKING:
            await asyncio.sleep(_POLL_SECONDS)
            task = await self._call("GetTask", {"id": task.get("id")})
        said = _text(_object(task.get("status")).get("message"))
        if state not in (_ASKING, _DONE):
            reason = f": {shown(said)}" if said else ""
            raise AgentProgramError(f"{self.agent.url} ended the task with {state or 'no state'}{reason}")
        ids = {"contextId": task.get("contextId"), "taskId": task.get("id") if state == _ASKING else None}
        self._state = {name: value for name, value in ids.items() if value}
        artifacts = [text for artifact in _listed(task.get("artifacts")) if (text := _text(artifact))]
        if state == _ASKING or not artifacts:
            artifacts.append(said)
        return "\n".join(filter(None, artifacts))

    async def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        request = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        value = await self._send(request, **{"A2A-Version": "1.0"})
        if isinstance(value, dict) and isinstance(result := value.get("result"), dict):
            return result
        raise AgentProgramError(f"{self.agent.url} answered with an error: {_reason(value)}")


_CONVERSATIONS: Final = {"url": ChatConversation, "responses": ResponsesConversation, "a2a": A2aConversation}


def _reason(value: Any) -> str:
    """Return what a response says about its failure."""
    for key in ("error", "incomplete_details"):
        if part := _object(_object(value).get(key)):
            return shown(str(part.get("message") or part.get("reason") or part))
    return shown(str(value))


def _text(holder: Any) -> str:
    """Return the text parts of a message or an artifact."""
    return "\n".join(str(part["text"]) for part in _listed(_object(holder).get("parts")) if "text" in part)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# ---- requests


async def post(url: str, headers: Mapping[str, str], body: Any, retries: int, may_repeat: Callable[[], bool]) -> Any:
    """Return the JSON value of the answer to a request, which is repeated only if it was certainly not processed.

    ``may_repeat`` returns whether the agent has done nothing yet, so that a request that was turned away can be sent
    again. Raise AgentProgramError for any other answer, and for none. Raise UsageError, before anything is sent, for a
    header that HTTP cannot express.
    """
    check_headers(headers, url)
    delay = _FIRST_DELAY
    for left in range(retries, -1, -1):
        answer = await _sent(url, headers, json.dumps(body).encode())
        if answer is None:
            if not left:
                reason = await _why_unreachable(url) or "no connection in time"
                remedy = "start the service, or correct the URL in the file of the agent"
                raise ServiceUnreachableError(f"{url} cannot be reached ({reason}); {remedy}")
        else:
            status, received, content = answer
            if not (left and status in _TURNED_AWAY and may_repeat()):
                return _value(url, status, received, content)
            seconds = received.get("retry-after", "")
            delay = max(delay, float(seconds) if seconds.isascii() and seconds.isdigit() else 0.0)
        await asyncio.sleep(min(delay, _LONGEST_DELAY))
        delay *= 2
    raise AssertionError


def check_headers(headers: Mapping[str, str], source: str) -> None:
    """Raise UsageError for the first header whose value HTTP cannot express. ``source`` is what it belongs to."""
    for name, value in headers.items():
        if not _HEADER.fullmatch(value):
            raise UsageError(
                f"{source}: the header {name!r} cannot be {truncated(value, _SHOWN)!r}, because a header is one line "
                "of Latin-1 text; correct the value, or send it in the body"
            )


async def _sent(url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Mapping[str, str], bytes] | None:
    """Return status, headers, and content of the response; None if no connection can be made."""
    import httpx2

    client = httpx2.AsyncClient(
        timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),  # the case has a time limit
        trust_env=False,
        verify=url.startswith("https:"),
    )
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    content = bytearray()
    try:
        async with client, client.stream("POST", url, content=body, headers=encoded) as response:
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > MAX_ANSWER:
                    break
            return response.status_code, response.headers, bytes(content)
    except (httpx2.ConnectError, httpx2.ConnectTimeout):
        return None
    except httpx2.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise AgentProgramError(f"{url} closed the connection before it answered: {reason}") from None


def _value(url: str, status: int, headers: Mapping[str, str], content: bytes) -> Any:
    if len(content) > MAX_ANSWER:
        raise AgentProgramError(f"{url} answered with more than {MAX_ANSWER:,} bytes; return the answer only")
    text = content.decode(errors="replace")
    if 300 <= status < 400:
        location = shown(headers.get("location", ""))
        raise AgentProgramError(f"{url} redirects ({status}) to {location}; put that URL into the file")
    if status != 200:
        raise AgentProgramError(f"{url} answered {status}: {shown(text)}")
    return parsed(text, f"the answer of {url}")


async def _why_unreachable(url: str) -> str:
    """Return why no connection to a URL is possible; empty if one is. Nothing is sent."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
    writer.close()
    return ""
