"""Generate values for a JSON Schema that are as realistic as its names allow."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pytest_toolemu.emulators.offline.regex_generator import RegexGenerator
from pytest_toolemu.emulators.offline.value_generator import QUERIES, Path, ValueGenerator, singular
from pytest_toolemu.formats.json_schema import violations

_BAD: Final = re.compile(r"(?i)fail|error|reject|den(y|ied)|cancel|invalid|declin|abort|refus")
_STATES: Final = frozenset({"status", "state", "result", "outcome"})
# Members that receive the words of a query, so that the results of a search are about its subject.
_HEADS: Final = ("name", "title", "subject", "full_name", "display_name", "summary", "snippet", "text")
_TRIES: Final = 50
_LONGEST: Final = 20_000
# The type that a keyword implies if the schema states none.
_HINTS: Final = {
    "properties": "object",
    "required": "object",
    "items": "array",
    "minItems": "array",
    "minimum": "number",
    "maximum": "number",
    "multipleOf": "number",
}


class UnsatisfiableSchemaError(Exception):
    """No value was found for a schema."""


class SchemaGenerator:
    """Generates values for schemas without references; the caller validates them, as not every keyword is honored.

    Members that are named like an argument in ``echo`` take its value if the schema allows it. Lists get one to three
    items, at most ``limit``, unless the schema requires more.
    """

    def __init__(self, seed: str, locale: str, now: datetime, echo: Mapping[str, Any], limit: int = 3) -> None:
        self._values = ValueGenerator(seed, locale, now)
        self._random = self._values.random
        self._echo, self._limit = dict(echo), limit

    def value(self, schema: Any, path: Path) -> Any:
        """Generate a value; UnsatisfiableSchemaError if none is found. The path begins with the tool's name."""
        if schema is False:
            raise UnsatisfiableSchemaError
        schema = self._plain(schema if isinstance(schema, dict) else {})
        if path[-1] in self._echo and not violations(schema, self._echo[path[-1]]):
            return self._echo[path[-1]]
        if "const" in schema:
            return schema["const"]
        for choices in (
            schema.get("enum"),
            [example for example in schema.get("examples", ()) if not violations(schema, example)],
        ):
            if choices:
                good = [choice for choice in choices if not _BAD.search(str(choice))] or choices
                # Most specifications list the successful outcome of a call first.
                return good[0] if len(path) == 2 and path[-1] in _STATES else self._random.choice(good)
        return getattr(self, f"_{_kind(schema)}")(schema, path)

    def _plain(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Merge ``allOf`` and choose a variant of ``anyOf`` and ``oneOf``; null only if there is no other variant."""
        for word in ("allOf", "anyOf", "oneOf"):
            if word in schema:
                merged = {key: value for key, value in schema.items() if key != word}
                parts = [part for part in schema[word] if isinstance(part, dict)]
                if word != "allOf":
                    parts = [self._random.choice([p for p in parts if p.get("type") != "null"] or parts or [{}])]
                for part in parts:
                    merged = _merged(merged, part)
                return self._plain(merged)
        return schema

    def _object(self, schema: dict[str, Any], path: Path) -> dict[str, Any]:
        required, members = schema.get("required", ()), schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        if not members and others is not False and len(path) > 1:
            members = dict.fromkeys(("id", "name"), others)
        members = {**members, **{name: others for name in required if name not in members}}
        result = {}
        for name, part in members.items():
            try:
                result[name] = self.value(part, (*path, name))
            except UnsatisfiableSchemaError:
                if name in required:
                    raise
        return result

    def _array(self, schema: dict[str, Any], path: Path) -> list[Any]:
        items, low, high = schema.get("items", {}), schema.get("minItems", 0), schema.get("maxItems", math.inf)
        requested = self._requested_items(items)
        count = len(requested) or max(low, min(self._random.randint(1, 3), self._limit))
        count = 0 if items is False else min(count, high)
        items_so_far = [self.value(part, path) for part in schema.get("prefixItems", ())]
        for attempt in range(_TRIES):
            if len(items_so_far) >= count:
                break
            if requested:
                self._echo |= requested[len(items_so_far)]
            item = self._about_query(self.value(items, (*path, singular(path[-1]))), items)
            is_short = len(items_so_far) < low and attempt > _TRIES // 2
            # An item is repeated only if no other can be found and the schema allows it.
            if item not in items_so_far or (is_short and not schema.get("uniqueItems")):
                items_so_far.append(item)
        return items_so_far

    def _about_query(self, item: Any, schema: Any) -> Any:
        query = next((value for name, value in self._echo.items() if name in QUERIES), None)
        head = next((name for name in _HEADS if isinstance(item, dict) and isinstance(item.get(name), str)), None)
        if not query or head is None or head in self._echo:
            return item
        text = " ".join(map(str, query)) if isinstance(query, list) else str(query)
        changed = item | {head: " ".join([text, *item[head].split()[1:]])}
        return item if violations(schema, changed) else changed

    def _requested_items(self, items: Any) -> list[dict[str, Any]]:
        """Return the known members of each item if the call gives a list of ids and the items have such an id."""
        members = items.get("properties", {}) if isinstance(items, dict) else {}
        lists = ((singular(name), values) for name, values in self._echo.items() if isinstance(values, list))
        ids = ((name, values) for name, values in lists if name in members)
        return [{name: value} for name, values in ids for value in values[: _TRIES // 2]]

    def _boolean(self, _schema: dict[str, Any], path: Path) -> bool:
        return self._values.truth(path[-1])

    def _null(self, _schema: dict[str, Any], _path: Path) -> None:
        return None

    def _integer(self, schema: dict[str, Any], path: Path) -> int:
        return int(self._drawn(schema, path, schema.get("multipleOf", 1)))

    def _number(self, schema: dict[str, Any], path: Path) -> float:
        return round(float(self._drawn(schema, path, schema.get("multipleOf", 0.01))), 10)

    def _drawn(self, schema: dict[str, Any], path: Path, step: float) -> float:
        low, high = self._values.span(path[-1])
        above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
        least, most = max(schema.get("minimum", above), above), min(schema.get("maximum", below), below)
        if low < least or high > most:
            low, high = (
                least if least > -math.inf else min(low, most - (high - low)),
                most if most < math.inf else max(high, least + (high - low)),
            )
        first, last = math.ceil(low / step), math.floor(high / step)
        first, last = first + (first * step <= above), last - (last * step >= below)
        if first <= last:
            return self._random.randint(first, last) * step
        # No multiple lies in the plausible range: take the next one, or any number between the bounds.
        return first * step if first * step < below and first * step <= most else (low + high) / 2

    def _string(self, schema: dict[str, Any], path: Path) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
        if least > _LONGEST:
            raise UnsatisfiableSchemaError
        text = self._values.text(path, schema.get("format"))
        if "format" not in schema:
            while len(text) < least:
                text += " " + self._values.vocabulary("word")
            text = text[: int(most)].rstrip().ljust(least, "s") if len(text) > most else text
        if "pattern" in schema and violations(schema, text):
            # If the name of something does not match, its code may: DE instead of Germany.
            text = self._values.text((*path[:-1], f"{path[-1]}_code"))
            return text if not violations(schema, text) else self._matching(schema["pattern"], least)
        return text

    def _matching(self, pattern: str, least: int) -> str:
        try:
            return RegexGenerator(pattern, self._random, least)()
        except ValueError as error:
            raise UnsatisfiableSchemaError from error


def _kind(schema: dict[str, Any]) -> str:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return str(next((kind for kind in kinds if kind != "null"), "null"))
    return str(kinds or next((kind for word, kind in _HINTS.items() if word in schema), "string"))


def _merged(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    both: dict[str, Any] = {**schema, **part}
    if "properties" in schema and "properties" in part:
        both["properties"] = {**schema["properties"], **part["properties"]}
    if "required" in schema and "required" in part:
        both["required"] = [*schema["required"], *part["required"]]
    return both
