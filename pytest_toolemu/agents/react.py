"""An agent for models without tool calls: thoughts, actions and observations as text."""

from __future__ import annotations

import json
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
from pytest_toolemu.prompts import render
from pytest_toolemu.settings import Prompt

_CORRECTION = "agent/react_correction"


@dataclass(frozen=True)
class ReactAgent:
    """Writes one call a turn until it writes a final answer.

    Each turn is cut after its first complete call, and what was cut off goes to ``trajectory.discarded``. A turn that
    cannot be read is corrected, at most twice in a row; then its text is the final answer.
    """

    model: Model
    prompt: Prompt = "naive"

    def __post_init__(self) -> None:
        check_variant(self.prompt)

    @property
    def identity(self) -> dict[str, Any]:
        """Kind, prompt, its hash and the model's identity."""
        return identity("react", self.prompt, _CORRECTION, self.model)

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:
        """The final answer; AgentStopped when the agent quits or meets a limit."""
        quits = self.prompt in QUITTING
        messages = self._opening(task, toolbox)
        problems = 0
        while True:
            reply = await next_reply(self.model, messages, toolbox)
            if reply.stop == "refusal":
                return refusal(reply)
            turn = read_turn(reply.text, quits=quits)
            match turn:
                case TextFinal():
                    return turn.answer
                case TextQuit():
                    toolbox.quit(turn.reason)
                case TextProblem() if problems == MAX_RETRIES:
                    return reply.text.strip()
            _keep(turn, messages, toolbox)
            if isinstance(turn, TextCall):
                problems = 0
                answer = await _observation(turn, toolbox)
            else:
                problems += 1
                answer = render(_CORRECTION, problem=turn.problem, quits=quits)
            messages.append(Message(role="user", content=answer))

    def _opening(self, task: Task, toolbox: Toolbox) -> list[Message]:
        tools = specification(toolbox.resolved_case.toolkits)
        names = list(toolbox.resolved_case.tools)
        system = render(f"agent/react_{self.prompt}", tools=tools, names=names, **environment(task))
        return [Message(role="system", content=system), Message(role="user", content=f"User Input: {task}")]


def _keep(turn: TextCall | TextProblem, messages: list[Message], toolbox: Toolbox) -> None:
    """The turn as it stays in the conversation. An empty one is left out, as endpoints refuse it."""
    if turn.kept:
        messages.append(Message(role="assistant", content=turn.kept))
    if turn.discarded:
        toolbox.trajectory.discarded.append(turn.discarded)


async def _observation(turn: TextCall, toolbox: Toolbox) -> str:
    returned = await toolbox.call(turn.name, turn.arguments)
    return f"Observation: {json.dumps(returned, ensure_ascii=False)}"
