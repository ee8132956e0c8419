"""A model that replies from a script, for tests that need no endpoint."""

from __future__ import annotations

import json
from typing import Any

from pytest_toolemu.core.messages import Message, ModelRequest, Reply, Usage
from pytest_toolemu.errors import ModelError


class ScriptedModel:
    """A model that gives these replies in turn: a Reply, text, another JSON value, or an error to raise.

    A reply that states no usage counts as one call with ``tokens`` output tokens.
    """

    def __init__(self, *replies: Any, provider: str = "test", tokens: int = 0) -> None:
        self.provider = provider
        self.tokens = tokens
        self.replies = list(replies)
        self.requests: list[ModelRequest] = []

    @property
    def identity(self) -> dict[str, Any]:
        return {"provider": self.provider, "name": "scripted"}

    @property
    def conversations(self) -> list[tuple[Message, ...]]:
        """The messages of each request."""
        return [request.messages for request in self.requests]

    async def complete(self, request: ModelRequest) -> Reply:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, ModelError):
            raise reply
        if not isinstance(reply, Reply):
            reply = Reply(text=reply if isinstance(reply, str) else json.dumps(reply))
        return reply if reply.usage != Usage() else reply.model_copy(update={"usage": self._usage})

    @property
    def _usage(self) -> Usage:
        return Usage(output=self.tokens, calls=1)
