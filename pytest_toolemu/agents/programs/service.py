"""An agent behind HTTP: it gets the task and the MCP address of its tools, and returns its answer."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from pytest_toolemu.agents.mcp import check_port, served, served_at
from pytest_toolemu.agents.programs.agent_file import (
    AgentFile,
    CaseValues,
    UsagePaths,
    filled,
    new_session,
    parsed,
    shown,
    text_at,
)
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import AgentProgramError, UsageError
from pytest_toolemu.formats.truncation import truncated


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
        async with self._served(toolbox, session) as url:
            values = CaseValues(task, toolbox.resolved_case.case.id, url, session=session)
            conversation = CONVERSATIONS[self.file.kind](
                self.file, values.by_name, toolbox, lambda body: self._request(values, body, toolbox).send()
            )
            answer = await self._answer(conversation, task)
            while conversation.continues and (reply := await toolbox.say(answer)) is not None:
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
        address = f"its service gets all tools at http://127.0.0.1:{self.file.tools_port}/mcp (tools_port)"
        if self.file.passes_traceparent:
            return f"{self.name}: {address}, and states with the traceparent header which case a call belongs to"
        return f"{self.name}: its cases run one at a time, because {address}"

    async def check(self) -> None:
        """Raise UsageError if the service cannot be reached, or its fixed port cannot be used."""
        if self.file.tools_port is not None:
            check_port(self.file.tools_port, self.name)
        if reason := await check_reachable(self.url):
            raise UsageError(
                f"agent {self.name!r}: {self.url} cannot be reached ({reason}); start the service, or correct the URL"
            )

    def _served(self, toolbox: Toolbox, session: str) -> AbstractAsyncContextManager[str]:
        port = self.file.tools_port
        if port is None:
            return served(toolbox)
        return served_at(port, toolbox, session if self.file.passes_traceparent else "")

    def _request(self, values: CaseValues, body: Any, toolbox: Toolbox) -> ServiceRequest:
        headers: Mapping[str, str] = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            # Instrumented services pass it on, so their logs can be joined with the records of the run.
            "traceparent": f"00-{values.session}-{values.session[:16]}-01",
            **PROTOCOL_HEADERS[self.file.kind],
            **filled(self.file.headers, values.by_name),
        }
        return ServiceRequest(self.url, headers, body, self.file.retries, lambda: not toolbox.trajectory.steps)


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


MAX_ANSWER: Final = 1_000_000
"""Bytes of a service's answer."""

_CONNECT_SECONDS: Final = 10.0
_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 30.0
_SHOWN: Final = 200
_HEADER: Final = re.compile(r"[\t -~\x80-\xff]*")
# Too many requests, and service unavailable: statuses of a request that was turned away.
_TURNED_AWAY: Final = (429, 503)


class ServiceUnreachableError(AgentProgramError):
    """The service that is the agent cannot be reached, so all further cases would fail as well."""


@dataclass(frozen=True)
class ServiceRequest:
    """A POST request with a JSON body, which is sent at most ``1 + retries`` times.

    ``may_repeat`` returns whether the agent has done nothing yet, so that a request that was turned away can be sent
    again.
    """

    url: str
    headers: Mapping[str, str]
    body: Any
    retries: int
    may_repeat: Callable[[], bool]

    async def send(self) -> Any:
        """Return the JSON value of the answer. AgentProgramError for any other answer, and for none.

        UsageError, before anything is sent, for a header that HTTP cannot express.
        """
        check_headers(self.headers, self.url)
        delay = _FIRST_DELAY
        for left in range(self.retries, -1, -1):
            exchange = _Exchange(self.url)
            try:
                status, headers, content = await exchange.run(json.dumps(self.body).encode(), self.headers)
            except _NotConnectedError as error:
                if not left:
                    raise self._unreachable(str(error)) from None
            else:
                if not (left and status in _TURNED_AWAY and self.may_repeat()):
                    return self._value(status, headers, content)
                delay = max(delay, _seconds(headers.get("retry-after", "")))
            await asyncio.sleep(min(delay, _LONGEST_DELAY))
            delay *= 2
        raise AssertionError

    def _value(self, status: int, headers: Mapping[str, str], content: bytes) -> Any:
        if len(content) > MAX_ANSWER:
            raise AgentProgramError(f"{self.url} answered with more than {MAX_ANSWER:,} bytes; return the answer only")
        text = content.decode(errors="replace")
        if 300 <= status < 400:
            raise AgentProgramError(
                f"{self.url} redirects ({status}) to {shown(headers.get('location', ''))}; put that URL into the file"
            )
        if status != 200:
            raise AgentProgramError(f"{self.url} answered {status}: {shown(text)}")
        return parsed(text, f"the answer of {self.url}")

    def _unreachable(self, reason: str) -> AgentProgramError:
        return ServiceUnreachableError(
            f"{self.url} cannot be reached ({reason}); start the service, or correct the URL in the file of the agent"
        )


def check_headers(headers: Mapping[str, str], source: str) -> None:
    """Raise UsageError for the first header whose value HTTP cannot express. ``source`` is what it belongs to."""
    for name, value in headers.items():
        if not _HEADER.fullmatch(value):
            shown_value = truncated(value, _SHOWN)
            raise UsageError(
                f"{source}: the header {name!r} cannot be {shown_value!r}, because a header is one line of Latin-1 "
                "text; correct the value, or send it in the body"
            )


async def check_reachable(url: str) -> str:
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


class _NotConnectedError(Exception):
    """No connection could be made, so nothing was sent."""


class _Exchange:
    """One request and its response, in a thread other than the loop's. Canceling closes the connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._url = url
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connection = kind(parts.hostname or "", parts.port, timeout=_CONNECT_SECONDS)

    async def run(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers with names in lower case, and content."""
        try:
            return await asyncio.to_thread(self._run, body, dict(headers))
        except asyncio.CancelledError:
            with contextlib.suppress(OSError, AttributeError):  # it may not be connected yet
                self._connection.sock.shutdown(socket.SHUT_RDWR)
            raise

    def _run(self, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        try:
            self._connection.connect()
        except OSError as error:
            raise _NotConnectedError(error.strerror or str(error)) from None
        try:
            self._connection.sock.settimeout(None)  # the case has a time limit
            self._connection.request("POST", self._target, body, headers)
            response = self._connection.getresponse()
            content = response.read(MAX_ANSWER + 1)
            return response.status, {name.lower(): value for name, value in response.getheaders()}, content
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise AgentProgramError(f"{self._url} closed the connection before it answered: {why}") from None
        finally:
            self._connection.close()


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() else 0.0
