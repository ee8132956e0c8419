"""An agent behind HTTP: it gets the task and the MCP address of its tools, and returns its answer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from pytest_toolemu.agents.mcp import check_port, served, served_at
from pytest_toolemu.agents.programs.agent_file import AgentFile
from pytest_toolemu.agents.programs.placeholders import CaseValues, filled, new_session
from pytest_toolemu.agents.programs.service_protocols import CONVERSATIONS, PROTOCOL_HEADERS, ServiceConversation
from pytest_toolemu.agents.programs.service_request import ServiceRequest, check_reachable
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import AgentProgramError, UsageError


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
