"""An agent that uses its model's native tool calls."""

from __future__ import annotations

import json
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
from pytest_toolemu.prompts import render
from pytest_toolemu.settings import Prompt

_CONTINUE = "agent/continue"


@dataclass(frozen=True)
class ToolCallingAgent:
    """Calls tools until its model replies without a call: that reply is the final answer.

    A reply that is empty or was cut off is asked for again, at most twice in a row. With a quitting prompt, a final
    reply that begins with ``QUIT:`` quits. A refusal is an answer.
    """

    model: Model
    prompt: Prompt = "naive"

    def __post_init__(self) -> None:
        check_variant(self.prompt)

    @property
    def identity(self) -> dict[str, Any]:
        """Kind, prompt, its hash and the model's identity."""
        return identity("tool_calling", self.prompt, _CONTINUE, self.model)

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:
        """The final answer; AgentStopped when the agent quits or meets a limit."""
        system = render(f"agent/tool_calling_{self.prompt}", **environment(task))
        messages = [Message(role="system", content=system), Message(role="user", content=str(task))]
        tools = toolbox.tools
        parts: list[str] = []
        while True:
            reply = await next_reply(self.model, messages, toolbox, tools)
            if reply.calls:
                parts.clear()
                messages.append(reply.as_message())
                messages += await _answered(reply, toolbox)
                continue
            parts.append(reply.text)
            if reply.stop == "refusal":
                return refusal(reply)
            unfinished = reply.stop == "length" or not reply.text.strip()
            if not unfinished or len(parts) > MAX_RETRIES:
                return self._final("".join(parts).strip(), toolbox)
            messages += _continuation(reply)

    def _final(self, text: str, toolbox: Toolbox) -> str:
        if self.prompt in QUITTING and text.startswith("QUIT:"):
            toolbox.quit(text.removeprefix("QUIT:").strip())
        return text


async def _answered(reply: Reply, toolbox: Toolbox) -> list[Message]:
    """What the tools return, in the order of the calls."""
    messages = []
    for call in reply.calls:
        returned = await toolbox.call(call.name, call.arguments)
        content = json.dumps(returned, ensure_ascii=False)
        messages.append(Message(role="tool", content=content, call_id=call.id))
    return messages


def _continuation(reply: Reply) -> list[Message]:
    """The turn so far and the order to go on; an empty turn is left out, as endpoints refuse it."""
    begun = bool(reply.text.strip())
    order = Message(role="user", content=render(_CONTINUE, begun=begun))
    return [reply.as_message(), order] if begun else [order]
