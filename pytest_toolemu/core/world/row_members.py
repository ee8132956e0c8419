"""Members of rows that no schema names: in a file, they are misspelled names, whose values nothing would read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pytest_toolemu.formats.json_schema_refs import inlined
from pytest_toolemu.formats.yaml_document import KEY, Loc, closest

# With one of these, a schema may describe members that 'properties' does not name.
_OPEN: Final = frozenset(
    {"additionalProperties", "patternProperties", "unevaluatedProperties", "anyOf", "oneOf", "allOf", "if", "$ref"}
)


def unknown_members(fields: Mapping[str, Any], row: Mapping[str, Any], entity: str) -> Iterator[tuple[Loc, str]]:
    """Yield the location of each name in a row that its entity does not have, with the nearest name that it has."""
    for name, value in row.items():
        if name not in fields:
            yield (name, KEY), f"{entity} has no field {name!r}{closest(name, fields)}"
        else:
            yield from _nested(inlined(fields[name]), value, (name,))


def without_members(value: Any, unknown: frozenset[Loc], loc: Loc = ()) -> Any:
    """Return a value without the members at these locations."""
    if isinstance(value, dict):
        kept = {name: part for name, part in value.items() if (*loc, name, KEY) not in unknown}
        return {name: without_members(part, unknown, (*loc, name)) for name, part in kept.items()}
    if isinstance(value, list):
        return [without_members(part, unknown, (*loc, index)) for index, part in enumerate(value)]
    return value


def _nested(schema: Any, value: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    if not isinstance(schema, dict):
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _nested(schema.get("items"), item, (*loc, index))
    elif isinstance(value, dict) and (members := schema.get("properties")):
        for name, part in value.items():
            if name in members:
                yield from _nested(members[name], part, (*loc, name))
            elif _OPEN.isdisjoint(schema) or schema.get("additionalProperties") is False:
                yield (*loc, name, KEY), f"{loc[0]} has no member {name!r}{closest(name, members)}"
