"""A built-in agent for models without tool calls: thoughts, actions, and observations are text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_toolemu.agents.react_text import TextCall, TextFinal, TextProblem, TextQuit, read_turn
from pytest_toolemu.agents.specification import specification
from pytest_toolemu.agents.turns import (
    MAX_RETRIES,
    QUITTING,
    check_variant,
    environment,
    identity,
    next_reply,
    refusal,
)
from pytest_toolemu.core.messages import Message, Model
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.formats.compact_json import compact_json
from pytest_toolemu.prompts import render
from pytest_toolemu.settings import Prompt

_CORRECTION = "agent/react_correction"
_CUT_OFF = "the final answer was cut off at the limit of tokens; write a shorter one"


@dataclass(frozen=True)
class ReactAgent:
    """Writes one call per turn until it writes a final answer to which no user replies.

    Each turn is cut after its first complete call; the rest goes to ``trajectory.discarded``. An unreadable turn is
    followed by a correction, at most twice in a row; the text of a third one is the final answer. A final answer that
    is cut off counts as unreadable.
    """

    model: Model
    prompt: Prompt = "naive"

    def __post_init__(self) -> None:
        check_variant(self.prompt)

    @property
    def identity(self) -> dict[str, Any]:
        """Kind, prompt, its hash, and the model's identity."""
        return identity("react", self.prompt, _CORRECTION, self.model)

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:
        """Return the final answer; AgentStopped if the agent quits or reaches a limit."""
        quits = self.prompt in QUITTING
        messages = self._opening(task, toolbox)
        corrections = 0
        while True:
            reply = await next_reply(self.model, messages, toolbox)
            if reply.stop == "refusal":
                return refusal(reply)
            turn = read_turn(reply.text, quits=quits)
            if isinstance(turn, TextFinal) and reply.stop == "length" and corrections < MAX_RETRIES:
                turn = TextProblem(_CUT_OFF, reply.text.strip(), "")
            match turn:
                case TextFinal():
                    answer = await toolbox.say(turn.answer)
                    if answer is None:
                        return turn.answer
                    corrections = 0
                    messages += [reply.as_message(), Message(role="user", content=f"User Input: {answer}")]
                    continue
                case TextQuit():
                    toolbox.quit(turn.reason)
                case TextProblem() if corrections == MAX_RETRIES:
                    return reply.text.strip()
            _keep(turn, messages, toolbox)
            if isinstance(turn, TextCall):
                corrections = 0
                message = await _observation(turn, toolbox)
            else:
                corrections += 1
                message = render(_CORRECTION, problem=turn.problem, quits=quits)
            messages.append(Message(role="user", content=message))

    def _opening(self, task: Task, toolbox: Toolbox) -> list[Message]:
        tools = specification(toolbox.resolved_case.toolkits)
        names = list(toolbox.resolved_case.tools)
        system = render(f"agent/react_{self.prompt}", tools=tools, names=names, **environment(task))
        return [Message(role="system", content=system), Message(role="user", content=f"User Input: {task}")]


def _keep(turn: TextCall | TextProblem, messages: list[Message], toolbox: Toolbox) -> None:
    """Add the readable part of a turn to the conversation; endpoints refuse an empty message, so that is left out."""
    if turn.kept:
        messages.append(Message(role="assistant", content=turn.kept))
    if turn.discarded:
        toolbox.trajectory.discarded.append(turn.discarded)


async def _observation(turn: TextCall, toolbox: Toolbox) -> str:
    result = await toolbox.call(turn.name, turn.arguments)
    return f"Observation: {compact_json(result)}"
