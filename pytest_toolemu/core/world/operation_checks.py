"""Parts of a declaration that SQLite accepts, although they have no effect or never match a row."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pytest_toolemu.core.world.entity_table import EntityTable, types_of
from pytest_toolemu.core.world.operation_plan import Plan
from pytest_toolemu.formats.yaml_document import KEY, Loc, closest

Problem = tuple[Loc, str]

_SIMILAR: Final = 0.75
_NEW_ID: Final = re.compile(r"(?i)\bnew_id\s*\(\s*'([^']*)'\s*\)")
_OF_LISTS: Final = ("list", "columns", "limit", "offset")
"""What only an operation that lists rows reads."""


def effect_problems(plan: Plan) -> Iterator[Problem]:
    """Yield keys of an operation that have no effect with its verb, and types that never match."""
    yield from _unread_problems(plan)
    yield from _condition_problems(plan)
    yield from _key_problems(plan)
    yield from _argument_problems(plan)
    yield from _new_key_problems(plan)


def entity_problems(table: EntityTable, tables: Mapping[str, EntityTable]) -> Iterator[Problem]:
    """Yield what has no effect in an entity, and references whose values never are keys."""
    loc: Loc = ("entities", table.name)
    if table.entity.id and table.counts_keys:
        yield (*loc, "id"), f"'id' is a pattern of text, and {table.key!r} is a number, which counts; remove it"
    for name, target in table.entity.refs.items():
        other = tables[target]
        if not _match(_single(table.fields[name]), other.fields[other.key]):
            kinds = _differ(f"the field {name!r}", _single(table.fields[name]), other)
            yield (*loc, "refs", name), f"{kinds}; no row can have it"


def _unread_problems(plan: Plan) -> Iterator[Problem]:
    operation, verb = plan.operation, plan.verb
    fields = type(operation).model_fields
    # A record holds every key of an operation, also those at their defaults.
    given = {
        name
        for name in operation.model_fields_set
        if getattr(operation, name) != fields[name].get_default(call_default_factory=True, validated_data={})
    }
    if verb != "search":
        for name in _OF_LISTS:
            if name in given:
                yield (name, KEY), f"{name!r} has no effect without 'search'; remove it"
    if "order" in given and verb != "search" and not plan.selects_by_condition:
        yield ("order", KEY), "'order' has no effect without 'search' or 'key: none'; remove it"
    if "where" in given and verb != "search" and not plan.selects_by_condition:
        yield ("where", KEY), "'where' has no effect here; use 'fail', or 'key: none' to choose the row by conditions"
    if "key" in given and verb == "search":
        yield ("key", KEY), "'key' has no effect with 'search'; an argument named like a field selects the rows"
    if "replace" in given and verb != "create":
        yield ("replace", KEY), "'replace' goes with 'create'"


def _condition_problems(plan: Plan) -> Iterator[Problem]:
    """Yield conditions that always apply, although they are probably meant for an argument."""
    without = [name for name in plan.arguments if name not in plan.operation.where]
    for name in plan.operation.where:
        if name not in plan.arguments and (near := difflib.get_close_matches(name, without, 1, _SIMILAR)):
            message = f"the tool has no argument {name!r}, so this condition always applies"
            yield ("where", name, KEY), f"{message}; did you mean {near[0]!r}? If not, give it another name"


def _key_problems(plan: Plan) -> Iterator[Problem]:
    """Yield arguments with keys of another type than the key's: SQLite does not convert them, so no row is found."""
    for lookup in plan.lookups:
        argument = plan.arguments[lookup.argument]
        schema = _single(argument)
        is_own = lookup.argument == plan.key_argument and lookup.argument not in plan.operation.find
        loc: Loc = (("key",) if "key" in plan.operation.model_fields_set else ()) if is_own else (
            "find", lookup.argument
        )  # fmt: skip
        if is_own and plan.verb == "get" and "array" in types_of(argument):
            fix = (
                f"use 'search' with where: {{{lookup.argument}: \"includes(:{lookup.argument}, {lookup.table.key})\"}}"
            )
            yield loc, f"the argument {lookup.argument!r} is a list of keys, and 'get' returns one row; {fix}"
        if not _match(schema, lookup.table.fields[lookup.table.key]):
            yield loc, f"{_differ(f'the argument {lookup.argument!r}', schema, lookup.table)}; no row is ever found"


def _argument_problems(plan: Plan) -> Iterator[Problem]:
    """Yield arguments that are compared with a field, or stored in it, and never have its type."""
    if plan.table is None:
        return
    operation, fields = plan.operation, plan.table.fields
    if plan.verb == "search" or plan.selects_by_condition:
        read = {*operation.where, *operation.unused, plan.limit, plan.offset}
        fix = "write its condition in 'where'"
    elif plan.verb in ("create", "update"):
        read = {*operation.set, plan.key_argument}
        fix = "convert it in 'set'"
    else:
        return
    for name, schema in plan.arguments.items():
        if name in fields and name not in read and not _match(schema, fields[name]):
            own, other = (_kinds(part) for part in (schema, fields[name]))
            yield (), f"the argument {name!r} is {_named(own)}, and the field {name!r} is {_named(other)}; {fix}"


def _new_key_problems(plan: Plan) -> Iterator[Problem]:
    """Yield unknown entities in calls of ``new_id``, which SQLite takes for any text."""
    for loc, statement in plan.parts():
        for name in _NEW_ID.findall(statement):
            if name not in plan.tables:
                yield loc, f"new_id({name!r}): the toolkit has no entity {name!r}{closest(name, plan.tables)}"


def _differ(what: str, schema: Any, table: EntityTable) -> str:
    own, key = (_named(_kinds(part)) for part in (schema, table.fields[table.key]))
    return f"{what} is {own}, and the key {table.key!r} of {table.name} is {key}"


def _single(schema: Any) -> Any:
    """Return the schema of one key, if the schema is of a list of keys."""
    return schema.get("items", {}) if isinstance(schema, dict) and "array" in types_of(schema) else schema


def _kinds(schema: Any) -> frozenset[str]:
    """Return the types of a schema's values as SQLite compares them: all numbers are of one type."""
    return frozenset("number" if kind == "integer" else kind for kind in types_of(schema)) - {"null"}


def _match(one: Any, other: Any) -> bool:
    """Return whether values of two schemas can be equal; unknown types can."""
    kinds = _kinds(one), _kinds(other)
    return not all(kinds) or not kinds[0].isdisjoint(kinds[1])


def _named(kinds: frozenset[str]) -> str:
    words = {"array": "a list", "object": "an object", "boolean": "a truth value", "string": "text"}
    return " or ".join(words.get(kind, f"a {kind}") for kind in sorted(kinds))
