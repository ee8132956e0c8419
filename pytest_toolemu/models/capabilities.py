"""Learn from refusals which parameters an endpoint does not support, and send requests without them.

There is no list of the many OpenAI- and Anthropic-compatible endpoints that support a temperature, a seed, or a reply
schema. So the first request has all parameters, and those that a refusal names are left out from then on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from pytest_toolemu.core.messages import Message, ModelRequest, Reply, ReplySchema, Usage
from pytest_toolemu.errors import ModelError
from pytest_toolemu.models.endpoint import ContentFilterError

Messages = tuple[Message, ...]
Body = dict[str, Any]
Build = Callable[[ModelRequest, frozenset[str]], Body]

# If a limit is refused because of its value, the user must change it; dropping it would silently lift the limit.
_LIMITS: Final = frozenset({"max_tokens", "max_completion_tokens"})
_BAD_VALUE: Final = re.compile(r"(?i)too large|exceed|context length|at most|maximum|less than|greater than")
# Parameters that change what a model replies; without the others, a request only costs more or is read less strictly.
_EFFECTIVE: Final = _LIMITS | {"temperature", "seed"}
# Parameters inside messages and tools; they count as sent without a search for them.
_NESTED: Final = frozenset({"strict", "cache_control"})
# Refused schemas, without any accepted one, after which the endpoint is taken not to support schemas.
_MAX_REFUSED_SCHEMAS: Final = 3
_SHORT: Final = 200


class Capabilities:
    """What one endpoint supports, learned during the life of its model."""

    def __init__(self, optional: frozenset[str]) -> None:
        self._optional = optional
        self._refused: frozenset[str] = frozenset()
        self._schemas_refused: dict[str, str] = {}  # each with the endpoint's reason
        self._accepts_schemas = False

    async def negotiate(self, request: ModelRequest, build: Build, send: Callable[[Body], Awaitable[Reply]]) -> Reply:
        """Build and send a request until the endpoint accepts it or rejects something that cannot be left out.

        ``build(request, refused)`` returns the body without the refused parameters. If the endpoint refuses the schema,
        ``build`` gets a request without one, whose messages ask for the schema in words. A request with a schema that
        the endpoint's content filter rejects counts as refused, like a reply that the filter stopped.
        """
        schema, refused = request.schema, self._refused
        constrain = tried = schema is not None and self._may_support(schema)
        complaint = "" if schema is None or tried else self._earlier_complaint(schema)
        while True:
            sent_request = request if constrain else with_schema_in_words(request)
            body = build(sent_request, refused)
            sent_options = {name for name in self._optional - refused if name in body or name in _NESTED}
            try:
                reply = await send(body)
            except ContentFilterError as error:
                if schema is None:
                    raise
                return Reply(stop="refusal", stop_detail=str(error), usage=Usage(calls=1))
            except ModelError as error:
                if named_options := _named(error, sent_options):
                    refused |= named_options
                elif constrain and error.status in (400, 404, 422):
                    constrain = False
                    complaint = _reason(error)
                else:
                    raise
                continue
            # Only a success without the parameters proves that they were the cause of the refusal.
            self._refused |= refused
            if schema is not None and tried:
                self._learn(schema, complaint)
            left_out = _left_out(build(sent_request, frozenset()), body) if refused else ()
            return reply.model_copy(update={"schema_fallback": complaint, "refused_parameters": left_out})

    def _may_support(self, schema: ReplySchema) -> bool:
        # One refusal may be due to that schema; several refusals without a success are due to the endpoint.
        return _key(schema) not in self._schemas_refused and (
            self._accepts_schemas or len(self._schemas_refused) < _MAX_REFUSED_SCHEMAS
        )

    def _earlier_complaint(self, schema: ReplySchema) -> str:
        """Return the endpoint's reason for refusing this schema, or another one if it never got this one."""
        return self._schemas_refused.get(_key(schema)) or next(iter(self._schemas_refused.values()))

    def _learn(self, schema: ReplySchema, complaint: str) -> None:
        if complaint:
            self._schemas_refused[_key(schema)] = complaint
        else:
            self._accepts_schemas = True


def with_schema_in_words(request: ModelRequest) -> ModelRequest:
    """Move a request's schema into its messages: after the system prompt, where caches keep it, or at the end."""
    messages, schema = request.messages, request.schema
    if schema is None:
        return request
    instruction = (
        "Reply with one JSON value and nothing else: no code fence, nothing before or after it. "
        "It must conform to this JSON Schema:\n"
        + json.dumps({**schema.schema_, "title": schema.name}, ensure_ascii=False)
    )
    index = 0 if messages and messages[0].role == "system" else len(messages) - 1
    if messages and messages[index].role in ("system", "user"):
        original = messages[index]
        extended = original.model_copy(update={"content": f"{original.content}\n\n{instruction}"})
        messages = (*messages[:index], extended, *messages[index + 1 :])
    else:
        messages = (*messages, Message(role="user", content=instruction))
    return replace(request, messages=messages, schema=None)


def as_object(arguments: str) -> dict[str, Any]:
    """Return a call's arguments in the form that endpoints accept in a conversation: an object, even if invalid."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


def tool_name(name: str) -> str:
    """Return a called name in the form that endpoints accept in a conversation, even if no tool has this name."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "_"


def unicode(text: str | None) -> str:
    """Replace lone surrogates, which some endpoints produce by cutting a character in two."""
    return (text or "").encode("utf-8", "replace").decode("utf-8")


def _left_out(whole: Body, sent: Body) -> tuple[str, ...]:
    """Return the parameters that change the reply and were not sent; a limit counts as sent under its other name."""
    sent_names = sent.keys() | (_LIMITS if _LIMITS & sent.keys() else frozenset())
    return tuple(sorted(_EFFECTIVE & whole.keys() - sent_names))


def _key(schema: ReplySchema) -> str:
    return json.dumps(schema.schema_, ensure_ascii=False)


def _reason(error: ModelError) -> str:
    text = str(error).partition(" answered ")[2]
    return f"the endpoint answered {text[:_SHORT]}"


def _named(error: ModelError, sent_options: set[str]) -> set[str]:
    if error.status not in (400, 422):
        return set()
    text = str(error).partition(" answered ")[2]  # the model's name, which comes first, may contain any word
    named_options = {name for name in sent_options if re.search(rf"\b{name}\b", text)}
    return named_options - _LIMITS if _BAD_VALUE.search(text) else named_options
