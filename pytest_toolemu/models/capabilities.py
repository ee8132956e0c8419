"""What an endpoint turns out not to take, learnt from its refusals, and how to say the same without it.

Nobody publishes which of the many OpenAI- and Anthropic-like endpoints take a temperature, a seed or a reply schema.
So a request is sent as wished, and what a refusal names is left out from then on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from pytest_toolemu.core.messages import Message, ModelRequest, Reply, ReplySchema
from pytest_toolemu.errors import ModelError

Messages = tuple[Message, ...]
Body = dict[str, Any]
Build = Callable[[ModelRequest, frozenset[str]], Body]

# A limit that is refused for its value is the user's to mend; dropping it would silently lift it.
_LIMITS: Final = frozenset({"max_tokens", "max_completion_tokens"})
_BAD_VALUE: Final = re.compile(r"(?i)too large|exceed|context length|at most|maximum|less than|greater than")
# These sit inside messages and tools, where it is not worth looking for them.
_NESTED: Final = frozenset({"strict", "cache_control"})
_TRIALS: Final = 3
_SHORT: Final = 200


class Capabilities:
    """The terms that one endpoint accepts, kept for the life of its model."""

    def __init__(self, optional: frozenset[str]) -> None:
        self._optional = optional
        self._refused: frozenset[str] = frozenset()
        self._schemas_refused: dict[str, str] = {}  # each with the endpoint's words
        self._schema_taken = False

    async def negotiate(self, request: ModelRequest, build: Build, send: Callable[[Body], Awaitable[Reply]]) -> Reply:
        """Build and send a request until the endpoint accepts it or rejects something that cannot be left out.

        ``build(request, refused)`` returns the body without the refused parameters. If the endpoint refuses the schema,
        ``build`` gets a request without one, whose messages ask for the schema in words.
        """
        schema, refused = request.schema, self._refused
        constrain = wished = schema is not None and self._worth_asking(schema)
        complaint = "" if schema is None or wished else self._complaint(schema)
        while True:
            body = build(request if constrain else with_schema_in_words(request), refused)
            sent = {name for name in self._optional - refused if name in body or name in _NESTED}
            try:
                reply = await send(body)
            except ModelError as error:
                if named := _named(error, sent):
                    refused |= named
                elif constrain and error.status in (400, 404, 422):
                    constrain = False
                    complaint = _complaint_of(error)
                else:
                    raise
                continue
            # Only a success without them shows that they were the trouble.
            self._refused |= refused
            if schema is not None and wished:
                self._learn(schema, complaint)
            return reply.model_copy(update={"schema_fallback": complaint}) if complaint else reply

    def _worth_asking(self, schema: ReplySchema) -> bool:
        # One refused schema may be that schema's fault; several and never a success are the endpoint's nature.
        return _key(schema) not in self._schemas_refused and (
            self._schema_taken or len(self._schemas_refused) < _TRIALS
        )

    def _complaint(self, schema: ReplySchema) -> str:
        """What the endpoint said when it refused this schema; of another that it refused, where it was not asked."""
        return self._schemas_refused.get(_key(schema)) or next(iter(self._schemas_refused.values()))

    def _learn(self, schema: ReplySchema, complaint: str) -> None:
        if complaint:
            self._schemas_refused[_key(schema)] = complaint
        else:
            self._schema_taken = True


def with_schema_in_words(request: ModelRequest) -> ModelRequest:
    """Move a request's schema into its messages: after the system prompt, where caches keep it, or at the end."""
    messages, schema = request.messages, request.schema
    if schema is None:
        return request
    words = (
        "Reply with one JSON value and nothing else: no code fence, nothing before or after it. "
        "It must conform to this JSON Schema:\n"
        + json.dumps({**schema.schema_, "title": schema.name}, ensure_ascii=False)
    )
    index = 0 if messages and messages[0].role == "system" else len(messages) - 1
    if messages and messages[index].role in ("system", "user"):
        original = messages[index]
        extended = original.model_copy(update={"content": f"{original.content}\n\n{words}"})
        messages = (*messages[:index], extended, *messages[index + 1 :])
    else:
        messages = (*messages, Message(role="user", content=words))
    return replace(request, messages=messages, schema=None)


def as_object(arguments: str) -> dict[str, Any]:
    """A call's arguments as endpoints demand to get them back: an object, whatever the model had written."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


def tool_name(name: str) -> str:
    """A called name as endpoints demand to get it back, even one the model made up."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "_"


def unicode(text: str | None) -> str:
    """Text without lone surrogates, which some endpoints produce by cutting a character in two."""
    return (text or "").encode("utf-8", "replace").decode("utf-8")


def _key(schema: ReplySchema) -> str:
    return json.dumps(schema.schema_, ensure_ascii=False)


def _complaint_of(error: ModelError) -> str:
    text = str(error).partition(" answered ")[2]
    return f"the endpoint answered {text[:_SHORT]}"


def _named(error: ModelError, sent: set[str]) -> set[str]:
    if error.status not in (400, 422):
        return set()
    text = str(error).partition(" answered ")[2]  # the model's name comes before, and may be anything
    named = {name for name in sent if re.search(rf"\b{name}\b", text)}
    return named - _LIMITS if _BAD_VALUE.search(text) else named
