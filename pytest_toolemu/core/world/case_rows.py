"""Checks the rows of a case against the entities that its toolkits declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_toolemu.core.case import Case
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.world.entity_table import EntityTable
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan, plan_of
from pytest_toolemu.core.world.world_state import MAX_TOOLKITS, RESERVED, RowError, recent_beginning
from pytest_toolemu.errors import WorldError
from pytest_toolemu.formats.json_schema import ValueSchema
from pytest_toolemu.formats.yaml_document import KEY, Loc, closest, format_location, show

Problem = tuple[Loc, str]


def row_problems(case: Case, toolkits: tuple[Toolkit, ...]) -> list[Problem]:
    """Return what is wrong with ``world`` and ``ids``, each with its location in the case file."""
    declared = {kit.name: kit for kit in toolkits if kit.entities}
    problems: list[Problem] = [
        (("world", name, KEY), f"no toolkit of the case with entities is named {show(name)}{closest(name, declared)}")
        for name in case.world
        if name not in declared
    ]
    problems += _name_problems(case)
    plans = {name: plan_of(kit) for name, kit in declared.items() if name in case.world}
    for plan in plans.values():
        problems += _entity_problems(plan, case, plans)
    problems += [*_id_problems(case, plans), *_shared_problems(case, plans)]
    if not problems:
        try:
            recent_beginning(plans, case.world)
        except RowError as error:
            problems.append((("world", *error.place), str(error)))
        except WorldError as error:
            problems.append((("world",), str(error)))
    return problems


def _name_problems(case: Case) -> Iterator[Problem]:
    """Yield why checks of the state could not query the toolkits, each of which is a database of its own."""
    used = set(RESERVED)
    for name in case.world:
        if name.casefold() in used:
            yield ("world", name, KEY), f"the name {show(name)} of a toolkit with rows is already used; rename it"
        used.add(name.casefold())
    if len(case.world) > MAX_TOOLKITS:
        message = f"at most {MAX_TOOLKITS} toolkits of a case can have rows, not {len(case.world)}; use fewer"
        yield ("world",), message


def _entity_problems(plan: ToolkitPlan, case: Case, plans: Mapping[str, ToolkitPlan]) -> Iterator[Problem]:
    for name, rows in case.world[plan.name].items():
        loc: Loc = ("world", plan.name, name)
        table = plan.tables.get(name)
        if table is None:
            yield (*loc, KEY), f"{plan.name} has no entity {show(name)}{closest(name, plan.tables)}"
            continue
        keys: set[str] = set()
        for index, row in enumerate(rows):
            yield from (((*loc, index, *where), text) for where, text in _row_problems(table, row, plan.name))
            key = repr(row.get(table.key))
            if key in keys and table.key in row:
                yield (*loc, index, table.key), f"two rows have the {table.key} {key}"
            keys.add(key)
        for field, target in table.entity.refs.items():
            keys_of_target = _keys(target, plan, case, plans)
            yield from _reference_problems(field, target, rows, keys_of_target, loc)


def _row_problems(table: EntityTable, row: dict[str, Any], kit: str) -> Iterator[Problem]:
    """Yield names and values of a row that its entity does not have, each with its location in the row."""
    entity = f"{kit}.{table.name}"
    for name in row:
        if name not in table.fields:
            yield (name, KEY), f"{entity} has no field {name!r}{closest(name, table.fields)}"
    for loc, text in table.row_rules.located_violations(
        {name: value for name, value in row.items() if name in table.fields}
    ):
        yield loc, f"not a row of {entity}: {f'{format_location(loc)}: ' if loc else ''}{text}"


def _keys(entity: str, plan: ToolkitPlan, case: Case, plans: Mapping[str, ToolkitPlan]) -> set[str]:
    """Return the keys of an entity's rows: if it is shared, also of those in the other toolkits that share it."""
    is_shared = plan.tables[entity].entity.shared
    sharing = [
        each
        for each in plans.values()
        if each is plan or (is_shared and entity in each.tables and each.tables[entity].entity.shared)
    ]
    return {str(row.get(each.tables[entity].key)) for each in sharing for row in case.world[each.name].get(entity, ())}


def _reference_problems(
    field: str, target: str, rows: tuple[dict[str, Any], ...], keys: set[str], loc: Loc
) -> Iterator[Problem]:
    """Yield references to rows that do not exist. Later, a row may outlive what it refers to, as histories do."""
    for index, row in enumerate(rows):
        value = row.get(field)
        for name in value if isinstance(value, list) else [] if value in (None, "") else [value]:
            if str(name) not in keys:
                yield (*loc, index, field), f"there is no {target} {show(name)}{closest(str(name), keys)}"


def _id_problems(case: Case, plans: Mapping[str, ToolkitPlan]) -> Iterator[Problem]:
    entities = {f"{kit}.{name}": table for kit, plan in plans.items() for name, table in plan.tables.items()}
    for name, keys in case.ids.items():
        if name not in entities:
            yield ("ids", name, KEY), f"no entity in 'world' is named {show(name)}{closest(name, entities)}"
            continue
        table = entities[name]
        kit, _, entity = name.partition(".")
        used, schema = _keys(entity, plans[kit], case, plans), ValueSchema(table.fields[table.key])
        for index, key in enumerate(keys):
            loc: Loc = ("ids", name, index)
            if str(key) in used:
                yield loc, f"{show(key)} is already the {table.key} of a row"
            elif key in keys[:index]:
                yield loc, f"{show(key)} occurs twice; each new row has a key of its own"
            for text in schema.violations(key)[:1]:
                yield loc, f"not a {table.key} of {name}: {text}"


def _shared_problems(case: Case, plans: Mapping[str, ToolkitPlan]) -> Iterator[Problem]:
    """Yield rows of shared entities that differ from those of the first toolkit, whose rows all others get."""
    owners: dict[str, str] = {}
    for kit, plan in plans.items():
        for name, table in plan.tables.items():
            if table.entity.shared and (owner := owners.setdefault(name, kit)) != kit:
                shared = plans[owner].tables[name]
                rows = {repr(row.get(shared.key)): row for row in case.world[owner].get(name, ())}
                for index, row in enumerate(case.world[kit].get(name, ())):
                    same = rows.get(repr(row.get(table.key)), {})
                    names = [field for field in shared.fields if field in row and row[field] != same.get(field)]
                    if names:
                        message = f"{owner}.{name}, which shares its rows, has no row with the same {', '.join(names)}"
                        yield ("world", kit, name, index), message
