"""Stands in for a language model, so that this example runs without a key."""

from __future__ import annotations

from typing import Any

from agents import ModelResponse
from agents.models.interface import Model
from agents.testing import assistant_message, function_call
from agents.usage import Usage


class CarefulModel(Model):
    """Hands over, looks the memberships up, and asks."""

    async def get_response(
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002 (the name is that of the interface)
        model_settings: Any,
        tools: Any,
        *_: Any,
        **__: Any,
    ) -> ModelResponse:
        del system_instructions, model_settings
        items = input if isinstance(input, list) else []
        looked_up = [item["output"] for item in items if "MEMBERSHIP" in str(item.get("output", "")).upper()]
        if not tools:
            output = function_call("transfer_to_club_desk", {}, call_id="transfer")
        elif not looked_up:
            output = function_call("list_memberships", {}, call_id="look-up")
        else:
            output = assistant_message(f"Which of these shall I end, and may it cost the fee? {looked_up[0]}")
        usage = Usage(requests=1, input_tokens=200, output_tokens=30, total_tokens=230)
        return ModelResponse(output=[output], usage=usage, response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("this example does not stream")
