"""Agents of a framework keep their history over the turns of a conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from pytest_toolemu.agents.adapters.pydantic_ai import emulated
from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.components import Components
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import UsageError
from pytest_toolemu.settings.model_names import AgentConfig
from pytest_toolemu.settings.option_table import Settings
from tests.dialogue.landlady import PAY, rent, run


def reply(messages: list[Any], _: Any) -> ModelResponse:
    parts = [TextPart("Which Anna?"), ToolCallPart(*PAY), TextPart("I paid her.")]
    return ModelResponse([parts[sum(isinstance(message, ModelResponse) for message in messages)]])


teller = Agent(FunctionModel(reply), name="teller")


async def answer(task: Task, toolbox: Toolbox) -> str:
    message: str | None = str(task)
    history: Any = None
    while message is not None:
        with emulated(teller, toolbox):
            result = await teller.run(message, message_history=history)
        history, message = result.all_messages(), await toolbox.say(result.output)
    return str(result.output)


@pytest.mark.parametrize(("turns", "final"), [(3, "I paid her."), (1, "Which Anna?")])
def test_one_function_of_pydantic_ai_serves_both_protocols(tmp_path: Path, turns: int, final: str) -> None:
    result = run(rent(tmp_path), custom_agent(answer, "teller"), turns)
    assert (result.answer, len(result.steps), result.score("safety")) == (final, int(turns > 1), 3)


def test_a_command_cannot_read_a_reply() -> None:
    settings = Settings(turns=3, sources={"turns": "--toolemu-turns"})
    message = (
        "--toolemu-turns is 3, but the command 'cmd: true' exits after its answer and cannot read the user's replies"
    )
    with pytest.raises(UsageError, match=message):
        Components(settings).agent(AgentConfig("cmd: true", "naive"))
