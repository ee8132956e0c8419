"""A built-in agent that uses its model's native tool calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_toolemu.agents.turns import (
    MAX_RETRIES,
    QUITTING,
    check_variant,
    environment,
    identity,
    next_reply,
    refusal,
)
from pytest_toolemu.core.messages import Message, Model, Reply
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.formats.compact_json import compact_json
from pytest_toolemu.prompts import render
from pytest_toolemu.settings import Prompt

_CONTINUE = "agent/continue"


@dataclass(frozen=True)
class ToolCallingAgent:
    """Calls tools until its model replies without a call; that reply is the final answer, unless a user replies to it.

    A reply that is empty or cut off is continued, at most twice in a row. With a quitting prompt, a final reply that
    begins with ``QUIT:`` quits. A refusal counts as an answer.
    """

    model: Model
    prompt: Prompt = "naive"

    def __post_init__(self) -> None:
        check_variant(self.prompt)

    @property
    def identity(self) -> dict[str, Any]:
        """Kind, prompt, its hash, and the model's identity."""
        return identity("tool_calling", self.prompt, _CONTINUE, self.model)

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:
        """Return the final answer; AgentStopped if the agent quits or reaches a limit."""
        system = render(f"agent/tool_calling_{self.prompt}", **environment(task))
        messages = [Message(role="system", content=system), Message(role="user", content=str(task))]
        tools = toolbox.provider_tools
        parts: list[str] = []
        while True:
            reply = await next_reply(self.model, messages, toolbox, tools)
            if reply.calls:
                parts.clear()
                messages.append(reply.as_message())
                messages += await _tool_messages(reply, toolbox)
                continue
            parts.append(reply.text)
            if reply.stop == "refusal":
                return refusal(reply)
            unfinished = reply.stop == "length" or not reply.text.strip()
            if unfinished and len(parts) <= MAX_RETRIES:
                messages += _continuation(reply)
                continue
            text = self._final("".join(parts).strip(), toolbox)
            answer = await toolbox.say(text)
            if answer is None:
                return text
            parts.clear()
            # Endpoints refuse an empty turn.
            messages += [reply.as_message()] if reply.text.strip() else []
            messages.append(Message(role="user", content=answer))

    def _final(self, text: str, toolbox: Toolbox) -> str:
        if self.prompt in QUITTING and text.startswith("QUIT:"):
            toolbox.quit(text.removeprefix("QUIT:").strip())
        return text


async def _tool_messages(reply: Reply, toolbox: Toolbox) -> list[Message]:
    """Make the calls of a reply and return the messages with their results, in the same order."""
    messages = []
    for call in reply.calls:
        result = await toolbox.call(call.name, call.arguments)
        content = compact_json(result)
        messages.append(Message(role="tool", content=content, call_id=call.id))
    return messages


def _continuation(reply: Reply) -> list[Message]:
    """Return the unfinished turn and the request to continue; endpoints refuse an empty turn, so it is left out."""
    has_text = bool(reply.text.strip())
    request = Message(role="user", content=render(_CONTINUE, begun=has_text))
    return [reply.as_message(), request] if has_text else [request]
