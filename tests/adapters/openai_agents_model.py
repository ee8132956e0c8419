"""A model of the OpenAI Agents SDK that follows a script."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from agents.testing import ModelStep, ScriptedModel
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from openai.types.responses.response_usage import InputTokensDetails

from tests.adapters.framework_case import CACHED, INPUT, OUTPUT, Turn

numbers = itertools.count()


def scripted(turns: Sequence[Turn]) -> ScriptedModel:
    """Return a model that replies with one turn after the other."""

    def call(name: str, arguments: str) -> ResponseFunctionToolCall:
        return ResponseFunctionToolCall(
            name=name, arguments=arguments, call_id=f"c{next(numbers)}", type="function_call"
        )

    def message(text: str) -> ResponseOutputMessage:
        content = ResponseOutputText(annotations=[], text=text, type="output_text")
        return ResponseOutputMessage(id="m", content=[content], role="assistant", status="completed", type="message")

    def step(turn: Turn) -> ModelStep:
        tokens = Usage(
            requests=1,
            input_tokens=INPUT,
            output_tokens=OUTPUT,
            total_tokens=INPUT + OUTPUT,
            input_tokens_details=InputTokensDetails(cached_tokens=CACHED, cache_write_tokens=0),
        )
        return ModelStep([message(turn)] if isinstance(turn, str) else [call(*each) for each in turn], usage=tokens)

    return ScriptedModel(step(turn) for turn in turns)
