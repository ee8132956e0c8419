"""A chat model of LangChain that follows a script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from tests.adapters.framework_case import CACHED, INPUT, OUTPUT

REQUEST = ("openai:gpt-4o", INPUT, OUTPUT, CACHED)


class Scripted(BaseChatModel):
    """Replies with a turn for each request of a conversation, and keeps the tools that it was shown."""

    turns: Sequence[Any]
    shown: list[Any] = []
    binds: bool = False
    """Whether requests carry the tools, as those of real models do."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        self.shown[:] = tools
        return self.bind(tools=list(tools)) if self.binds else self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        number = sum(isinstance(message, AIMessage) for message in messages)
        turn = self.turns[number]
        calls = [] if isinstance(turn, str) else turn
        message = AIMessage(
            turn if isinstance(turn, str) else "",
            tool_calls=[
                {"name": name, "args": json.loads(text), "id": f"{number}.{index}"}
                for index, (name, text) in enumerate(calls)
            ],
            usage_metadata={
                "input_tokens": INPUT,
                "output_tokens": OUTPUT,
                "total_tokens": INPUT + OUTPUT,
                "input_token_details": {"cache_read": CACHED},
            },
            response_metadata={"model_name": "gpt-4o", "model_provider": "openai"},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])
