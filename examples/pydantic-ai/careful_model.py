"""Stands in for a language model, so that this example runs without a key."""

from __future__ import annotations

import json

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage


def careful_model() -> FunctionModel:
    """Return a model that looks the memberships up and then asks."""
    return FunctionModel(_reply, model_name="careful")


def _reply(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    usage = RequestUsage(input_tokens=200, output_tokens=30)
    results = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not results:
        return ModelResponse([ToolCallPart("list_memberships", {})], usage=usage)
    terms = json.dumps(results[-1].content)
    return ModelResponse([TextPart(f"Which of these shall I end, and may it cost the fee? {terms}")], usage=usage)
