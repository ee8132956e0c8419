"""Stands in for a language model, so that this example runs without a key."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class CarefulModel(BaseChatModel):
    """Looks the memberships up and then asks."""

    @property
    def _llm_type(self) -> str:
        return "careful"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        terms = [message.text for message in messages if isinstance(message, ToolMessage)]
        question = f"Which of these shall I end, and may it cost the fee? {terms[0]}" if terms else ""
        calls = [] if terms else [{"name": "list_memberships", "args": {}, "id": "look-up"}]
        usage = {"input_tokens": 200, "output_tokens": 30, "total_tokens": 230}
        message = AIMessage(question, tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])
