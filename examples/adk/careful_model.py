"""Stands in for a language model, so that this example runs without a key."""

from __future__ import annotations

from collections.abc import AsyncIterator

from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types


class CarefulModel(BaseLlm):
    """Looks the memberships up and then asks."""

    model: str = "careful"

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        del stream
        last = (llm_request.contents[-1].parts or [types.Part()])[0].function_response
        part = (
            types.Part(text=f"Which of these shall I end, and may it cost the fee? {last.response}")
            if last
            else types.Part.from_function_call(name="list_memberships", args={})
        )
        yield LlmResponse(
            content=types.Content(role="model", parts=[part]),
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=200, candidates_token_count=30
            ),
        )
