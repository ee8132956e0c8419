"""Checks what a toolkit declares, and makes the plans of its tools. Every statement is tried on empty tables."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_toolemu.core.toolkit import Tool, Toolkit
from pytest_toolemu.core.world.database import FUNCTION_NAMES, explained
from pytest_toolemu.core.world.declarations import Operation
from pytest_toolemu.core.world.entity_table import EntityTable, ToolkitDatabases, allows_null, entity_tables, types_of
from pytest_toolemu.core.world.operation_plan import (
    CALL_VALUES,
    INVALID_REQUEST,
    NO_KEY,
    NOT_FOUND,
    Lookup,
    Plan,
    declared_error,
    key_argument,
)
from pytest_toolemu.errors import WorldError
from pytest_toolemu.formats.json_schema import once_per_object
from pytest_toolemu.formats.yaml_document import KEY, Loc, closest

Problem = tuple[Loc, str]

_ALIAS: Final = re.compile(r"[a-z][a-z0-9_]*")
_CHANGE: Final = re.compile(r"(?i)\s*(insert|update|delete|replace|with)\b")
_PARAMETER: Final = re.compile(r":([A-Za-z_]\w*)")
_FILLED: Final = ("more", "total")


@dataclass(frozen=True)
class ToolkitPlan:
    """The tables of a toolkit, and the plans of its tools that declare an operation."""

    name: str
    tables: Mapping[str, EntityTable]
    plans: Mapping[str, Plan]
    databases: ToolkitDatabases = field(compare=False, repr=False)


def plan_of(toolkit: Toolkit) -> ToolkitPlan:
    """Return the plan of a toolkit. Raise WorldError if its declarations are not valid."""
    plan, problems = planned(toolkit)
    if problems:
        raise WorldError(f"{toolkit.name}: {problems[0][1]}")
    return plan


@once_per_object(1024)
def planned(toolkit: Toolkit) -> tuple[ToolkitPlan, list[Problem]]:
    """Return the plans of a toolkit, and every problem of its declarations with its location in the toolkit's file.

    They are computed once for each toolkit.
    """
    tables, problems = entity_tables(toolkit)
    plans: dict[str, Plan] = {}
    for index, tool in enumerate(toolkit.tools):
        if tool.operation is not None:
            where: Loc = ("tools", index, "operation")
            plan, own = _plan(tool, tool.operation, tables)
            problems += [((*where, *loc), message) for loc, message in own]
            if plan is not None:
                plans[tool.name] = plan
    result = ToolkitPlan(toolkit.name, tables, plans, ToolkitDatabases(tables))
    return result, problems or list(_statement_problems(toolkit, result))


def _plan(tool: Tool, operation: Operation, tables: Mapping[str, EntityTable]) -> tuple[Plan | None, list[Problem]]:
    """Return the plan of a tool, None if names in its operation are unknown; and the problems of the names."""
    problems: list[Problem] = []
    arguments = tool.parameters.get("properties", {})
    table = tables.get(operation.entity or "")
    if operation.entity is not None and table is None:
        hint = closest(operation.entity, tables)
        return None, [((operation.verb or "",), f"the toolkit has no entity {operation.entity!r}{hint}")]
    lookups: list[Lookup] = []
    key = key_argument(operation, tool, table)
    if table is not None and key is not None and operation.verb in ("get", "update", "delete"):
        lookups.append(Lookup(table.name, table, key))
    for argument, target in operation.find.items():
        name, _, alias = target.partition(" ")
        loc: Loc = ("find", argument)
        if argument not in arguments:
            problems.append(((*loc, KEY), f"the tool has no argument {argument!r}{closest(argument, arguments)}"))
        elif name not in tables:
            problems.append((loc, f"the toolkit has no entity {name!r}{closest(name, tables)}"))
        elif alias and not _ALIAS.fullmatch(alias):
            problems.append((loc, f"the alias {alias!r} is not valid; use lowercase letters, digits, and _"))
        else:
            # Other verbs than search execute the operation for each key of a list, so that there it is one key.
            is_list = "array" in types_of(arguments[argument]) and (argument != key or operation.verb == "search")
            lookups.append(Lookup(alias or name, tables[name], argument, is_list))
    aliases = [each.alias for each in lookups if not each.is_list]
    for alias in {alias for alias in aliases if aliases.count(alias) > 1}:
        problems.append((("find",), f"two rows have the name {alias!r}; give one an alias, such as '{alias} other'"))
    plan = Plan(tool, operation, tables, table, tuple(lookups))
    problems += _reference_problems(plan)
    return (None if problems else plan), problems


def _reference_problems(plan: Plan) -> Iterator[Problem]:
    """Yield arguments, fields, members and errors that do not exist."""
    operation, tool, fields = plan.operation, plan.tool, plan.table.fields if plan.table else {}
    arguments: dict[Loc, str | None] = {("key",): operation.key if operation.key != NO_KEY else None}
    arguments |= {("limit",): plan.limit, ("offset",): operation.offset}
    arguments |= {("unused", index): name for index, name in enumerate(operation.unused)}
    members: dict[Loc, str | None] = {("show", name, KEY): name for name in operation.show}
    is_list = not isinstance(operation.columns, str)
    columns: dict[Loc, str] = {("columns", *[index] * is_list): name for index, name in enumerate(plan.columns)}
    named: list[tuple[str, Collection[str], Mapping[Loc, str | None]]] = [
        ("the tool has no argument", plan.arguments, arguments),
        ("the tool declares no error", tool.errors, {("fail", name, KEY): name for name in operation.fail}),
        ("the result has no member", {**plan.returns, **plan.item_members}, {**members, ("list",): operation.list}),
        ("the entity has no field", fields, {("set", name, KEY): name for name in operation.set}),
        ("the entity has no field", {*fields, *operation.show}, columns),
    ]
    for text, known, names in named:
        for loc, name in names.items():
            if name is not None and name not in known:
                yield loc, f"{text} {name!r}{closest(name, known)}"
    tables = [each.table for each in plan.lookups] + ([plan.table] if plan.table and plan.selects_by_condition else [])
    if any(not each.entity.open for each in tables) and declared_error(tool, NOT_FOUND, INVALID_REQUEST) is None:
        verb = operation.verb or "find"
        yield (verb,), "a key may be unknown, and the tool declares no error for that; add NotFound to its errors"
    for index, statement in enumerate(operation.then):
        if not _CHANGE.match(statement):
            yield ("then", index), "a statement begins with INSERT, UPDATE, or DELETE"


def declaration_problems_in_file(toolkit: Toolkit) -> list[Problem]:
    """Return every problem of a toolkit's declarations, and what has no effect in them or never matches a row.

    Toolkits in records, which other versions may have accepted, are only executed; ``planned`` checks them.
    """
    kit, problems = planned(toolkit)
    problems = problems or [each for table in kit.tables.values() for each in _entity_problems(table, kit.tables)]
    return problems or list(_of_tools(toolkit, kit, _effect_problems))


def _of_tools(
    toolkit: Toolkit, kit: ToolkitPlan, problems_of: Callable[[Plan], Iterable[Problem]]
) -> Iterator[Problem]:
    """Yield the problems of each operation, with their locations in the toolkit's file."""
    for index, tool in enumerate(toolkit.tools):
        if (plan := kit.plans.get(tool.name)) is not None:
            for loc, message in problems_of(plan):
                yield ("tools", index, "operation", *loc), f"{tool.name}: {message}"


def _statement_problems(toolkit: Toolkit, kit: ToolkitPlan) -> Iterator[Problem]:
    """Yield statements that SQLite refuses, results without a value, and arguments without an effect."""
    if not kit.tables and not kit.plans:
        return  # an imported toolkit needs no database
    if (problem := kit.databases.table_problem()) is not None:
        name, part, error = problem
        yield ("entities", name, *part), _explained(error, kit)
        return
    yield from _of_tools(toolkit, kit, lambda plan: [*_sql_problems(plan, kit), *_coverage_problems(plan)])


def _sql_problems(plan: Plan, kit: ToolkitPlan) -> Iterator[Problem]:
    values = dict.fromkeys([*CALL_VALUES, *plan.arguments])
    for loc, statement in plan.parts():
        try:
            kit.databases.check(statement, values)
        except (sqlite3.Error, sqlite3.Warning) as error:
            yield loc, _explained(error, kit, values)


def _explained(error: Exception, kit: ToolkitPlan, values: Iterable[str] = ()) -> str:
    fields = {field for table in kit.tables.values() for field in table.fields}
    scope = "operations read and write the toolkit's tables, and do nothing else"
    return explained(error, {*kit.tables, *fields, *FUNCTION_NAMES, *values}, scope)


def _coverage_problems(plan: Plan) -> Iterator[Problem]:
    """Yield members of results and fields of created rows without a value, and arguments without an effect."""
    yield from _member_problems(plan)
    if plan.list_member and plan.table is not None and plan.items_are_objects:
        for name in plan.item_schema.get("required", ()):
            is_null = name in plan.table.fields and name in plan.nullable_items
            if name not in plan.operation.show and not is_null:
                yield from _field_problems(plan.table, name, f"the member {name!r} of the listed items")
    if plan.operation.verb == "create" and plan.table is not None:
        yield from _creation_problems(plan, plan.table)
    text = " ".join(statement for _, statement in plan.parts())
    named = {*_PARAMETER.findall(text), plan.key_argument, plan.limit, plan.offset}
    for name in plan.arguments:
        if name not in {*named, *plan.operation.find, *plan.operation.unused}:
            yield (), f"the argument {name!r} has no effect; use it, or add it to 'unused'"


def _member_problems(plan: Plan) -> Iterator[Problem]:
    fields = plan.table.fields if plan.table is not None and plan.operation.verb != "search" else {}
    constant = {name for name, schema in plan.returns.items() if is_constant(schema)}
    sources = {*plan.shown, *constant, *plan.arguments, *fields, plan.list_member, *_FILLED, "success"}
    for name in plan.tool.returns.get("required", ()):
        if name not in sources:
            yield ("show",), f"the member {name!r} of the result has no value; add it to 'show'"
        elif allows_null(plan.returns.get(name)):
            continue
        elif plan.table is not None and name in fields and name not in {*plan.shown, *constant, *plan.assigned}:
            yield from _field_problems(plan.table, name, f"the member {name!r} of the result")


def _field_problems(table: EntityTable, name: str, member: str) -> Iterator[Problem]:
    """Yield that no field fills a member of each result, because rows do not have it, or need not have it."""
    if name not in table.fields:
        yield ("show",), f"{member} has no value; add it to 'show'"
    elif name not in table.required and "default" not in table.fields[name]:
        reason = f"rows of {table.name} need not have the field {name!r}, the value of {member}"
        yield ("show",), f"{reason}; add it to 'required' of the entity, give it a default, or add it to 'show'"


def _creation_problems(plan: Plan, table: EntityTable) -> Iterator[Problem]:
    present = {*plan.tool.parameters.get("required", ()), *plan.operation.set}
    present |= {name for fields in (plan.arguments, table.fields) for name in fields if "default" in fields[name]}
    for name in sorted(table.required - {table.key} - present):
        when = " if the argument is absent" if name in plan.arguments else f", which every {table.name} has"
        yield ("set",), f"created rows have no {name!r}{when}; add it to 'set'"


def is_constant(schema: Any) -> bool:
    """Return whether a schema allows one value only."""
    return isinstance(schema, dict) and ("const" in schema or len(schema.get("enum", ())) == 1)


_ONLY_OF_SEARCH: Final = ("list", "columns", "limit", "offset")


def _effect_problems(plan: Plan) -> Iterator[Problem]:
    """Yield keys of an operation that have no effect with its verb, and types that never match."""
    verb = plan.verb
    chooses = verb == "search" or plan.selects_by_condition
    is_read = {**dict.fromkeys(_ONLY_OF_SEARCH, verb == "search"), "order": chooses, "where": chooses}
    is_read |= {"key": verb != "search", "replace": verb == "create", "set": verb in ("create", "update")}
    for name, has_effect in is_read.items():
        if getattr(plan.operation, name) and not has_effect:
            yield (name, KEY), f"{name!r} has no effect with {verb!r}; remove it"
    yield from _type_problems(plan)


def _type_problems(plan: Plan) -> Iterator[Problem]:
    """Yield arguments that never have the type of the key or field they are compared with, or stored in."""
    operation, fields = plan.operation, plan.table.fields if plan.table is not None else {}
    for lookup in plan.lookups:
        name, table = lookup.argument, lookup.table
        loc: Loc = ("find", name) if name in operation.find else ("key",) if operation.key else ()
        schema = plan.arguments[name]
        if plan.verb == "get" and name == plan.key_argument and "array" in types_of(schema):
            yield loc, f"the argument {name!r} is a list of keys, and 'get' returns one row; use 'search'"
        yield from _mismatch(loc, f"argument {name!r}", _single(schema), table.fields[table.key], f"key {table.key!r}")
    if plan.verb == "search" or plan.selects_by_condition:
        converted = {*operation.where, *operation.unused, plan.limit, plan.offset}
    elif plan.verb in ("create", "update"):
        converted = {*operation.set, plan.key_argument}
    else:
        return
    for name, schema in plan.arguments.items():
        if name in fields and name not in converted:
            yield from _mismatch((), f"argument {name!r}", schema, fields[name], f"field {name!r}")


def _entity_problems(table: EntityTable, tables: Mapping[str, EntityTable]) -> Iterator[Problem]:
    """Yield what has no effect in an entity, and references whose values never are keys."""
    loc: Loc = ("entities", table.name)
    if table.entity.id and table.counts_keys:
        yield (*loc, "id"), f"'id' is a pattern of text, and {table.key!r} is a number, which counts; remove it"
    for name, target in table.entity.refs.items():
        key = tables[target].fields[tables[target].key]
        yield from _mismatch(
            (*loc, "refs", name), f"field {name!r}", _single(table.fields[name]), key, f"key of {target}"
        )


def _mismatch(loc: Loc, what: str, schema: Any, other: Any, other_name: str) -> Iterator[Problem]:
    """Yield that no value conforms to both schemas. SQLite does not convert values that it compares."""
    # All numbers are of one type; a schema without a type allows every value.
    own, others = (
        frozenset("number" if kind == "integer" else kind for kind in types_of(part)) - {"null"}
        for part in (schema, other)
    )
    if own and others and own.isdisjoint(others):
        yield loc, f"the {what} is {' or '.join(sorted(own))}, and the {other_name} is {' or '.join(sorted(others))}"


def _single(schema: Any) -> Any:
    """Return the schema of one key, if the schema is of a list of keys."""
    return schema.get("items", {}) if isinstance(schema, dict) and "array" in types_of(schema) else schema
