"""Rules of both APIs. For requests that break them, the real services answer 400, and so does the loopback server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.loopback.records import Message, RefusedError, Tool

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_ENFORCED: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength")
_NOT_ENFORCED_EITHER: Final = ("maxLength", "maxItems")


def field(body: Any, name: str, kind: type) -> Any:
    """Return a required field of the request."""
    value = body.get(name) if isinstance(body, dict) else None
    if not isinstance(value, kind) or not value:
        raise RefusedError(f"{name}: a non-empty {kind.__name__} is required, not {value!r}")
    return value


def valid_name(name: str, where: str) -> str:
    """Return a name that both providers accept."""
    if not _NAME.fullmatch(name):
        raise RefusedError(f"{where}: {name!r} does not match ^[a-zA-Z0-9_-]{{1,64}}$")
    return name


def check_distinct(tools: Sequence[Tool]) -> None:
    """Check that tool names are unique."""
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise RefusedError(f"tools: the name {name!r} is not unique")


def check_answered(messages: Sequence[Message]) -> None:
    """Check that each tool call is answered once, right after the turn that made it, and that nothing else is."""
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message.role == "tool":
            if message.call_id not in waiting:
                raise RefusedError(
                    f"messages[{index}]: no call {message.call_id!r} in the turn before waits for a result"
                )
            waiting.remove(message.call_id)
        elif waiting:
            raise RefusedError(f"messages[{index}]: the calls {waiting} have no result immediately after them")
        waiting.extend(call.id for call in message.calls)
    if waiting:
        raise RefusedError(f"messages: the calls {waiting} have no result immediately after them")


def check_closed(schema: Any, where: str, *, all_required: bool) -> None:
    """Check that every object forbids unknown keys and, for OpenAI's strict mode, requires each declared one."""
    for place, part in _parts(schema, ()):
        if "object" not in part.get("type", ()) and "properties" not in part:
            continue
        if part.get("additionalProperties") is not False:
            raise RefusedError(f"{where}: in context={place}, 'additionalProperties' must be supplied and be false")
        missing = set(part.get("properties", {})) - set(part.get("required", ()))
        if all_required and missing:
            raise RefusedError(
                f"{where}: in context={place}, 'required' must hold every key; missing: {sorted(missing)}"
            )


def check_enforceable(schema: Any, where: str) -> None:
    """Check that the schema has no bounds that Anthropic's decoder cannot enforce."""
    for place, part in _parts(schema, ()):
        for word in (*_NOT_ENFORCED, *_NOT_ENFORCED_EITHER):
            if word in part:
                raise RefusedError(f"{where}: in context={place}, {word!r} is not supported")
        if part.get("minItems", 0) > 1:
            raise RefusedError(f"{where}: in context={place}, 'minItems' other than 0 and 1 is not supported")


def _parts(schema: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    if not isinstance(schema, dict):
        return
    yield place, schema
    for word in ("properties", "$defs", "definitions"):
        for name, part in schema.get(word, {}).items():
            yield from _parts(part, (*place, word, name))
    for word in ("items", "additionalProperties"):
        yield from _parts(schema.get(word), (*place, word))
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for index, part in enumerate(schema.get(word, ())):
            yield from _parts(part, (*place, word, str(index)))
