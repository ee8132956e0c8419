"""Built worlds of ToolEmu's official cases without a model, for ``benchmarks.tokens``.

The toolkits are those of ``tests.official``. A script takes the place of the builder: rows are derived from what the
tools answered in a published run of the case, and generated rows complete each entity to three. Such a world is neither
designed nor proved. The agent is a script, too: it makes the calls of the run, and then generated ones.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.rehearsal import Script, generated_call
from benchmarks.rows_of_pins import rows_of_pins
from pytest_toolemu.authoring.importers.evaluations import read_lines, trajectory_in
from pytest_toolemu.authoring.importers.runs import read_trajectory
from pytest_toolemu.core.case import Case, ResolvedCase
from pytest_toolemu.core.case_rules import Pin
from pytest_toolemu.core.run import Step, sha256
from pytest_toolemu.core.world.built_world import in_built_world
from pytest_toolemu.core.world.entity_table import EntityTable, types_of
from pytest_toolemu.core.world.operation_plan import Plan
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan
from pytest_toolemu.core.world.world import World
from pytest_toolemu.emulators.world_builder import plans_of
from pytest_toolemu.errors import OpenEntityError
from pytest_toolemu.formats.json_schema import conforms
from tests.official.declared_toolkits import official_toolkit, originals
from tests.operation_properties import Material

Json = dict[str, Any]
ROWS: Final = 3


@dataclass(frozen=True)
class RecordedRun:
    """A published run: the ID of its case, and its calls with their answers."""

    case_id: str
    steps: tuple[Step, ...]

    @property
    def answered(self) -> int:
        """The number of calls that an emulator answered."""
        return sum(step.observation.source == "recorded" for step in self.steps)


def recorded_runs(path: Path) -> list[RecordedRun]:
    """Return the runs in a file of published trajectories."""
    toolkits = {name: official_toolkit(name) for name in originals()}
    records = [trajectory_in(line.record) for line in read_lines(path)]
    return [RecordedRun(record["case"]["name"], read_trajectory(record, toolkits).steps) for record in records]


def longest_runs(runs: Sequence[RecordedRun]) -> dict[str, RecordedRun]:
    """Return for each case the run with the most answered calls."""
    return {run.case_id: run for run in sorted(runs, key=lambda run: run.answered)}


def in_scripted_world(resolved_case: ResolvedCase, run: RecordedRun | None) -> ResolvedCase:
    """Return a case with declared toolkits, and with rows that fit what a run was answered."""
    kits = tuple(official_toolkit(kit.name) for kit in resolved_case.toolkits)
    declared = replace(resolved_case, toolkits=kits)
    plans = plans_of(declared.toolkits)
    pins = tuple(_pins(run.steps if run else (), plans))
    case = declared.case.model_copy(update={"pins": pins})
    derived = _derived_rows(case, plans)
    rows = {kit: _completed(plan, derived.get(kit, {})) for kit, plan in plans.items()}
    return in_built_world(declared, rows)


def script(resolved_case: ResolvedCase, run: RecordedRun | None, calls: int, uses: Mapping[str, int]) -> Script:
    """Return the calls of a run, at most this many, and then generated ones that use the rows of the case.

    The tools of generated calls are drawn at random, in proportion to ``uses`` plus one.
    """
    recorded = [(step.call.name, step.call.arguments) for step in run.steps] if run else []
    names = list(resolved_case.tools)
    shares = [1 + uses.get(name, 0) for name in names]
    random = Random(resolved_case.case.id)
    drawn = random.choices(range(len(names)), shares, k=max(0, calls - len(recorded)))
    # The number decides the tool and the arguments: equal calls are repeated reads.
    numbers = [index + len(names) * position for position, index in enumerate(drawn)]
    return [*recorded[:calls], *(_call_on_rows(resolved_case, number) for number in numbers)]


def hits(resolved_case: ResolvedCase, calls: Script, run: RecordedRun | None) -> Iterator[str]:
    """Yield for each call how the world answers it, and if it is one of the run, whether as published."""
    world = World.of(resolved_case)
    tools = {resolved_case.callable_name(tool): tool for tool in resolved_case.tools_in_files}
    steps = run.steps if run else ()
    for index, (name, arguments) in enumerate(calls):
        tool = tools.get(name)
        plan = world.plan(tool)
        if tool is None or not conforms(resolved_case.tools_in_files[tool].parameters, arguments):
            yield "rejected as invalid"
        elif plan is None:
            yield "undeclared tool"
        else:
            published = steps[index].observation.content if index < len(steps) else None
            yield _answer(world, tool, arguments, index, published)


def _answer(world: World, tool: str, arguments: Json, index: int, published: Json | None) -> str:
    """Return how rows answer a call of a declared tool."""
    plan = world.plan(tool)
    try:
        content = world.call(tool, arguments, index)
    except OpenEntityError:
        return "unknown key of an open entity"
    answer = "rows: an error" if "error" in content else "rows: nothing" if _is_empty(content) else "rows: a result"
    if published is None or plan is None:
        return answer
    if "error" in published or not conforms(plan.tool.returns, published):
        return f"{answer}; published: an error, or not as specified"
    return f"{answer}; published: {'nothing' if _is_empty(published) else 'a result'}"


def _is_empty(content: Json) -> bool:
    return any(value in ([], {}) for value in content.values())


def _pins(steps: Sequence[Step], plans: Mapping[str, ToolkitPlan]) -> Iterator[Pin]:
    """Yield the answers of a run as pins, as far as they are results that the tools declare."""
    for step in steps:
        kit, _, name = (step.call.tool or "").partition(".")
        plan = plans[kit].plans.get(name) if kit in plans else None
        content = step.observation.content
        if plan is None or "error" in content or not isinstance(step.call.arguments, dict):
            continue
        if conforms(plan.tool.returns, content) and conforms(plan.tool.parameters, step.call.arguments):
            yield Pin(tool=str(step.call.tool), arguments=step.call.arguments, returns=_with_keys(plan, content))


def _with_keys(plan: Plan, content: Json) -> Json:
    """Return a result whose listed items have keys: rows need them, and many tools do not show them."""
    if plan.table is None or not plan.list_member or not plan.items_are_objects:
        return content
    shown = {name for name, expression in plan.operation.show.items() if expression == plan.table.key}
    items = [
        item
        if {plan.table.key, *shown} & item.keys()
        else {**item, plan.table.key: f"{plan.table.name}-{sha256(item)[:6]}"}
        for item in content[plan.list_member]
        if isinstance(item, dict)
    ]
    return {**content, plan.list_member: items}


def _derived_rows(case: Case, plans: Mapping[str, ToolkitPlan]) -> dict[str, dict[str, list[Json]]]:
    derived = rows_of_pins(case, plans)
    for kit, tables in derived.tables.items():
        for name, rows in tables.items():
            table = plans[kit].tables[name]
            tables[name] = {
                key: fitting for key, row in rows.items() if table.key in (fitting := _fitting_values(table, row))
            }
    derived.complete(case)
    return derived.world


def _fitting_values(table: EntityTable, row: Json) -> Json:
    return {field: value for field, value in row.items() if conforms(table.fields[field], value)}


def _completed(plan: ToolkitPlan, derived: Mapping[str, list[Json]]) -> dict[str, tuple[Json, ...]]:
    """Return the derived rows that are possible, and as many generated ones as are missing."""
    database = plan.databases.lend({})
    generated = Material(plan, 0).rows
    rows: dict[str, tuple[Json, ...]] = {}
    for name, table in plan.tables.items():
        own: list[Json] = []
        for row in [*derived.get(name, ()), *generated[name]]:
            if len(own) >= max(ROWS, len(derived.get(name, ()))) or table.row_rules.violations(row):
                continue
            try:
                table.insert(database, table.complete(row))
                own.append(row)
            except sqlite3.IntegrityError:
                continue
        rows[name] = tuple(own)
    return rows


def _call_on_rows(resolved_case: ResolvedCase, number: int) -> tuple[str, Json]:
    """Return a generated call whose required arguments are keys, values, and words of rows where there are any."""
    name, arguments = generated_call(resolved_case, number)
    dotted = next(tool for tool in resolved_case.tools_in_files if resolved_case.callable_name(tool) == name)
    world = World.of(resolved_case)
    if (plan := world.plan(dotted)) is None:
        return name, arguments
    rows = world.rows()[dotted.partition(".")[0]]
    from_rows = {each: value for each in arguments if (value := _value_in_rows(plan, each, rows)) is not None}
    changed = {**arguments, **from_rows}
    return name, changed if conforms(plan.tool.parameters, changed) else arguments


def _value_in_rows(plan: Plan, argument: str, rows: Mapping[str, list[Json]]) -> Any:
    """Return a key, a value, or a word of a row that the argument can be; None if there is none."""
    schema = plan.arguments[argument]
    lookup = next((each for each in plan.lookups if each.argument == argument), None)
    table = lookup.table if lookup else plan.table
    row = next(iter(rows[table.name]), {}) if table else {}
    words = [text.split()[0] for text in row.values() if isinstance(text, str) and text.split()]
    candidates = [row.get(table.key) if lookup and table else row.get(argument), *words[-1:]]
    for value in [each for each in candidates if each is not None]:
        fitting = [value] if "array" in types_of(schema) and not isinstance(value, list) else value
        if conforms(schema, fitting):
            return fitting
    return None
