"""A built-in agent that uses its model's native tool calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, get_args

from pytest_toolemu.core.messages import Message, Model, Reply, ToolSpec
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import compact_json
from pytest_toolemu.formats.yaml_document import closest
from pytest_toolemu.models.structured_output import ask
from pytest_toolemu.prompts import clock, prompt_hash, render
from pytest_toolemu.settings.model_names import Prompt

QUITTING: Final[frozenset[Prompt]] = frozenset({"quit", "simple_quit"})
MAX_RETRIES: Final = 2
"""Number of times in a row that an unusable reply is requested again."""


@dataclass(frozen=True)
class PromptedAgent:
    """A built-in agent: a model with a prompt. Raise UsageError for an unknown prompt."""

    model: Model
    prompt: Prompt = "naive"
    kind: ClassVar[str]
    follow_up: ClassVar[str]
    """The prompt after a turn that is unusable or cut off."""

    def __post_init__(self) -> None:
        if self.prompt not in get_args(Prompt):
            raise UsageError(f"unknown agent prompt {self.prompt!r}{closest(self.prompt, get_args(Prompt))}")

    @property
    def identity(self) -> dict[str, Any]:
        """Kind, prompt, a hash of every prompt that the agent can get, and the model's identity."""
        hashes = [prompt_hash(f"agent/{self.kind}_{self.prompt}"), prompt_hash(self.follow_up)]
        return {"kind": self.kind, "prompt": self.prompt, "prompt_hash": sha256(hashes), "model": self.model.identity}


class ToolCallingAgent(PromptedAgent):
    """Calls tools until its model replies without a call; that reply is the final answer, unless a user replies to it.

    A reply that is empty or cut off is continued, at most twice in a row. With a quitting prompt, a final reply that
    begins with ``QUIT:`` quits. A refusal counts as an answer.
    """

    kind = "tool_calling"
    follow_up = "agent/continue"

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
    request = Message(role="user", content=render(ToolCallingAgent.follow_up, begun=has_text))
    return [reply.as_message(), request] if has_text else [request]


def environment(task: Task) -> dict[str, Any]:
    """Return user, time, and locale of the task as values for the prompts."""
    return {"user": task.user, "now": clock(task.now), "locale": task.locale}


async def next_reply(
    model: Model, messages: list[Message], toolbox: Toolbox, tools: tuple[ToolSpec, ...] = ()
) -> Reply:
    """Return the model's next turn; AgentStopped if the agent's reported tokens exceed the limit."""
    reply = await ask(model, "agent", toolbox.trajectory.ledger, messages, tools=tools)
    if error := toolbox.exceeded_tokens():
        raise error
    return reply


def refusal(reply: Reply) -> str:
    """Return the final answer of an agent that refuses: its text, or else the endpoint's explanation."""
    return reply.text.strip() or reply.stop_detail
