"""Build the worlds of a session with a model: one request, at most two corrections, and a proof by code."""

from __future__ import annotations

import asyncio
import copy
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_toolemu import prompts
from pytest_toolemu.core import case_timer
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_rules import CarefulRead, Design, Proof, RiskyCall, Trap
from pytest_toolemu.core.messages import Ledger, Message, ReplySchema
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import Tool, Toolkit
from pytest_toolemu.core.world.built_world import (
    SUFFIX,
    BuiltWorld,
    in_built_world,
    proof_problems,
    prove_world,
    read_world,
    world_key,
    world_path,
    write_world,
)
from pytest_toolemu.core.world.entity_table import EntityTable, types_of
from pytest_toolemu.core.world.operation_plan import Plan
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan, plan_of
from pytest_toolemu.errors import ToolemuError, UsageError
from pytest_toolemu.formats.json_schema import inlined, subschemas
from pytest_toolemu.formats.text import quoted
from pytest_toolemu.models.cassette_files import CassetteDirectory
from pytest_toolemu.models.cassette_recorder import CassetteRecorder, recorder_of
from pytest_toolemu.models.retrying import HarnessModel
from pytest_toolemu.models.strict_schema import TEXT, array_of, closed_object, to_strict, without_nulls
from pytest_toolemu.models.structured_output import ask_structured
from pytest_toolemu.prompts import clock

Json = dict[str, Any]
Rows = dict[str, dict[str, tuple[Json, ...]]]

RULES: Final = "builder/rules"
CASE: Final = "builder/case"
_OBJECT: Final[Json] = {"type": "object"}


def builder_key(resolved_case: ResolvedCase, variant: int = 1) -> str:
    """Return the SHA-256 of everything that the world of a case is built from, except the model."""
    return world_key(resolved_case, sha256([prompts.prompt_hash(name) for name in (RULES, CASE)]), variant)


def plans_of(toolkits: Iterable[Toolkit]) -> dict[str, ToolkitPlan]:
    """Return the plans of the toolkits that declare entities, by the name of the toolkit."""
    return {kit.name: plan_of(kit) for kit in toolkits if kit.entities}


async def build_world(
    resolved_case: ResolvedCase,
    model: HarnessModel,
    *,
    variant: int = 1,
    earlier: Sequence[str] = (),
    ledger: Ledger | None = None,
) -> BuiltWorld:
    """Return a world of a case that is proved. ``earlier`` are the scenarios from which it should differ.

    The model calls are added to ``ledger``. Raise InconclusiveError if the model refuses, or if its reply is still not
    acceptable after two corrections.
    """
    plans = plans_of(resolved_case.toolkits)
    ledger = Ledger(variant - 1) if ledger is None else ledger

    def parse(reply: Json) -> tuple[Rows, Design, Proof]:
        rows = rows_of_reply(reply["rows"], plans)
        proof = _proof(reply["proof"])
        if problems := proof_problems(in_built_world(resolved_case, rows), proof):
            raise ValueError("\n".join(problems))
        return rows, Design(**reply["design"]), proof

    reply = await ask_structured(
        model, "builder", ledger, builder_messages(resolved_case, plans, earlier), reply_schema(plans), parse
    )
    rows, design, proof = reply.value
    usage = ledger.usage("builder")
    return BuiltWorld(
        case_id=resolved_case.case.id,
        key=builder_key(resolved_case, variant),
        variant=variant,
        rows=rows,
        design=design,
        proof=proof,
        model=reply.model.identity,
        repairs=reply.repairs,
        input_tokens=usage.input,
        output_tokens=usage.output,
    )


def reply_schema(plans: dict[str, ToolkitPlan]) -> ReplySchema:
    """Return the schema of a reply: the design first, then the rows of every table, then the proof."""
    read = closed_object({"tool": TEXT, "arguments": _OBJECT, "shows": array_of(TEXT)})
    call = closed_object({"tool": TEXT, "arguments": _OBJECT})
    return ReplySchema(
        name="world",
        schema=closed_object(
            {
                "design": closed_object(dict.fromkeys(Design.model_fields, TEXT)),
                "rows": rows_schema(plans),
                "proof": closed_object({"careful_reads": array_of(read), "risky_calls": array_of(call)}),
            }
        ),
    )


def rows_schema(plans: Mapping[str, ToolkitPlan]) -> Json:
    """Return the schema of the rows of every table, without the descriptions that ``table_lines`` contain."""
    schemas = {
        kit: {name: array_of(_row_schema(table)) for name, table in plan.tables.items()} for kit, plan in plans.items()
    }
    return closed_object({kit: closed_object(tables) for kit, tables in schemas.items()})


def _row_schema(table: EntityTable) -> Json:
    schema = copy.deepcopy(inlined(table.row_schema()))
    for _, part in subschemas(schema, ()):
        part.pop("description", None)
    return dict(to_strict(schema))


def rows_of_reply(reply: Json, plans: Mapping[str, ToolkitPlan]) -> Rows:
    """Return the rows in a reply, without the nulls that stand for absent columns."""
    return {
        kit: {
            name: tuple(without_nulls(inlined(table.row_schema()), row) for row in reply[kit][name])
            for name, table in plan.tables.items()
        }
        for kit, plan in plans.items()
    }


def _proof(reply: Json) -> Proof:
    reads = tuple(CarefulRead(**{**read, "shows": tuple(read["shows"])}) for read in reply["careful_reads"])
    if not reads:
        raise ValueError("proof.careful_reads: name at least one call that shows a reason to stop or to ask")
    calls = tuple(RiskyCall(**call) for call in reply["risky_calls"])
    if not 0 < len(calls) < 10:
        raise ValueError("proof.risky_calls: name the calls that do the harm, from one to nine")
    return Proof(careful_reads=reads, risky_calls=calls)


def builder_messages(
    resolved_case: ResolvedCase, plans: dict[str, ToolkitPlan], earlier: Sequence[str] = ()
) -> tuple[Message, ...]:
    """Return the request for a world; ``earlier`` are the scenarios from which it should differ."""
    case = resolved_case.case
    text = prompts.render(
        CASE,
        tables=list(table_lines(resolved_case.toolkits, plans)),
        tools=list(tool_lines(resolved_case.toolkits, plans)),
        user=quoted(f"{case.user.name} <{case.user.email}>"),
        now=clock(case.now),
        locale=case.locale,
        instruction=quoted(case.instruction),
        task_gaps=[quoted(gap) for gap in case.underspecified.task],
        safety_gaps=[quoted(gap) for gap in case.underspecified.safety],
        outcomes=[quoted(outcome) for outcome in case.risks.outcomes],
        actions=[quoted(action) for action in case.risks.actions],
        earlier=[quoted(scenario) for scenario in earlier],
    )
    # The first message is the same for every case, so that providers can cache it.
    return Message(role="system", content=prompts.render(RULES)), Message(role="user", content=text)


# Canceled requests may take this long to end, in seconds.
_GRACE: Final = 2.0


@dataclass(frozen=True)
class PlannedWorld:
    """World number ``variant`` of a case, counted from 1, in a folder that may have it or not."""

    resolved_case: ResolvedCase
    variant: int
    folder: Path

    @functools.cached_property
    def key(self) -> str:
        """The SHA-256 of everything that the world is built from, except the model."""
        return builder_key(self.resolved_case, self.variant)

    @property
    def path(self) -> Path:
        """The file of the world."""
        return world_path(self.folder, self.resolved_case.case.id, self.key, self.variant)

    @property
    def failure_path(self) -> Path:
        """The file for the requests and replies of a failed attempt, next to that of the world."""
        return self.path.with_name(self.path.name.removesuffix(SUFFIX) + ".failed.json")

    @property
    def name(self) -> str:
        """The world in messages."""
        return f"world {self.variant} of {self.resolved_case.case.id}"

    def read(self) -> BuiltWorld:
        """Return the world. Raise UsageError if its file cannot be read, or contains another world."""
        return read_world(self.path, self.key)

    def proved(self) -> tuple[ResolvedCase, Trap]:
        """Return the case in this world, with its trap. Raise UsageError for a world that does not fit the case."""
        world = self.read()
        try:
            return prove_world(self.resolved_case, world), world.trap
        except UsageError as error:
            raise UsageError(f"{self.path}: {error}") from None


@dataclass
class WorldBuild:
    """The attempt to build one world: the world, or the ``problem`` because of which there is none."""

    planned: PlannedWorld
    ledger: Ledger
    world: BuiltWorld | None = None
    problem: str = ""
    recorder: CassetteRecorder | None = None


@dataclass
class WorldStage:
    """Builds worlds with a model. A world that cannot be built stops no other one.

    ``timeout`` is in seconds for each world, without waiting for rate limits. With ``cassettes``, requests are recorded
    and replayed; ``item`` then returns the name of a world's cassette.
    """

    model: Any
    timeout: float
    cassettes: CassetteDirectory | None = None
    item: Callable[[PlannedWorld], str] = lambda planned: planned.name
    builds: list[WorldBuild] = field(default_factory=list)
    _write_error: str = ""
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def build_all(self, worlds: Iterable[PlannedWorld], concurrency: int) -> None:
        """Build the worlds, those of ``concurrency`` cases at a time."""
        slots = asyncio.Semaphore(concurrency)

        async def in_a_slot(of_case: Sequence[PlannedWorld]) -> None:
            async with slots:
                await self.build_case(of_case)

        try:
            async with asyncio.TaskGroup() as group:
                for of_case in by_case(worlds):
                    group.create_task(in_a_slot(of_case))
        finally:
            self._ended.set()

    async def wait_for_end(self) -> None:
        """Wait until ``build_all`` has ended, which takes a moment after it was canceled; at most two seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), _GRACE)

    async def build_case(self, worlds: Sequence[PlannedWorld]) -> list[WorldBuild]:
        """Build the worlds of one case one after the other, as each is to differ from those before it."""
        return [await self._build(planned) for planned in sorted(worlds, key=lambda planned: planned.variant)]

    async def _build(self, planned: PlannedWorld) -> WorldBuild:
        problem = self._write_error or "the session was interrupted"
        build = WorldBuild(planned, Ledger(planned.variant - 1), problem=problem)
        try:
            if not self._write_error:
                # A task of its own has a timer of its own.
                await asyncio.create_task(self._attempt(build))
        finally:  # also if it is canceled: its requests may have been paid for
            self.builds.append(build)
        return build

    async def _attempt(self, build: WorldBuild) -> None:
        planned, case_id = build.planned, build.planned.resolved_case.case.id
        limit: asyncio.Timeout | None = None
        try:
            async with case_timer.begin().limit(self.timeout) as limit:
                with recorder_of(self.cassettes, self.item(planned), case_id, planned.variant) as build.recorder:
                    build.ledger.recorder = build.recorder
                    world = await build_world(
                        planned.resolved_case,
                        self.model,
                        variant=planned.variant,
                        earlier=_earlier_scenarios(planned),
                        ledger=build.ledger,
                    )
                write_world(planned.folder, world)
                build.world = world
            build.problem = ""
        except ToolemuError as error:
            build.problem = str(error)
        except Exception as error:
            if limit is not None and limit.expired():
                build.problem = f"it took more than {self.timeout:g} s; raise --toolemu-timeout if the model is slow"
            elif isinstance(error, OSError):
                build.problem = self._write_error = f"no world can be written: {error.strerror or error}"
            else:
                build.problem = f"{type(error).__name__}: {error}"


def by_case(worlds: Iterable[PlannedWorld]) -> list[list[PlannedWorld]]:
    """Return the worlds of each case, every world once."""
    cases: dict[str, dict[Path, PlannedWorld]] = {}
    for planned in worlds:
        cases.setdefault(planned.resolved_case.case.id, {}).setdefault(planned.path, planned)
    return [list(of_case.values()) for of_case in cases.values()]


def _earlier_scenarios(planned: PlannedWorld) -> list[str]:
    """Return the scenarios of the worlds of the case with lower numbers, as far as the folder has them."""
    scenarios = []
    for variant in range(1, planned.variant):
        earlier = PlannedWorld(planned.resolved_case, variant, planned.folder)
        if earlier.path.is_file():
            with suppress(UsageError):  # reported when an agent is to meet it
                scenarios.append(earlier.read().design.scenario)
    return scenarios


BY_A_MODEL: Final = "answered by a model"
"""What the text says about a tool that declares no operation."""


def table_lines(toolkits: Sequence[Toolkit], plans: Mapping[str, ToolkitPlan]) -> Iterator[str]:
    """Yield each table with its columns, and the tools that read and change it."""
    for kit, plan in ((kit, plans[kit.name]) for kit in toolkits if kit.name in plans):
        for name, table in plan.tables.items():
            columns = ", ".join(_column(table, field) for field in table.fields)
            readers = [tool for tool, each in plan.plans.items() if _shows(each, name)]
            writers = [tool for tool, each in plan.plans.items() if _changes(each, name)]
            # Tools that a model answers can change any row.
            writers += [f"perhaps {tool.name}" for tool in kit.tools if not tool.operation and tool.effect != "read"]
            uses = f"read by {', '.join(readers) or 'no tool'}; changed by {', '.join(writers) or 'no tool'}"
            yield f"{kit.name}.{name}({columns}): {uses}"


def tool_lines(toolkits: Sequence[Toolkit], plans: Mapping[str, ToolkitPlan]) -> Iterator[str]:
    """Yield each tool with its parameters, and with what its results show."""
    for kit in toolkits:
        for tool in kit.tools:
            plan = plans[kit.name].plans.get(tool.name) if kit.name in plans else None
            members = _shown_members(plan) if plan is not None else [BY_A_MODEL]
            shows = f": {', '.join(members)}" if members else ""
            errors = "; ".join(f"{name} ({' '.join(condition.split())})" for name, condition in tool.errors.items())
            fails = f"; errors: {errors}" if errors else ""
            yield f"{kit.name}.{tool.name}({', '.join(_parameters(tool, plan))}){shows}{fails}"


def _parameters(tool: Tool, plan: Plan | None) -> Iterator[str]:
    """Yield the parameters of a tool, each with the table of which it holds a key."""
    tables = {lookup.argument: lookup.table.name for lookup in plan.lookups} if plan is not None else {}
    required = tool.parameters.get("required", ())
    for name, schema in inlined(tool.parameters).get("properties", {}).items():
        mark = "" if name in required else "?"
        refers = f" of {tables[name]}" if name in tables else ""
        yield _with_kind(f"{name}{mark}{refers}", schema)


def _shown_members(plan: Plan) -> list[str]:
    """Return what a result tells an agent: the members of its listed items, or its own."""
    if plan.list_member and plan.items_are_objects and plan.table is not None:
        return [name for name in plan.item_members if name in plan.operation.show or name in plan.table.fields]
    return [_with_kind(name, schema) for name, schema in plan.returns.items() if name != "success"]


def _column(table: EntityTable, field: str) -> str:
    mark = "*" if field == table.key else ""
    refers = f" of {table.entity.refs[field]}" if field in table.entity.refs else ""
    # A description contains units and formats.
    description = " ".join(str(table.fields[field].get("description", "")).split()).rstrip(".")
    return _with_kind(f"{field}{mark}{refers}", table.fields[field], description)


def _with_kind(name: str, schema: dict[str, Any], description: str = "") -> str:
    """Return a name with the kind of its values, which is left out for plain text, and their description."""
    kind = _kind(schema)
    notes = [note for note in ("" if kind == "string" else kind, description) if note]
    return f"{name} ({'; '.join(notes)})" if notes else name


def _kind(schema: dict[str, Any]) -> str:
    """Return the kind of values that a schema allows, as a model reads it fastest."""
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    types = types_of(schema)
    if types == {"array"} and isinstance(items := schema.get("items"), dict) and _kind(items):
        return f"array of {_kind(items)}"
    if types == {"object"} and schema.get("properties"):
        return f"object of {', '.join(_with_kind(name, part) for name, part in schema['properties'].items())}"
    return str(schema.get("format") or schema.get("pattern") or "/".join(sorted(types)))


def _shows(plan: Plan, name: str) -> bool:
    """Return whether the results of a tool come from a table."""
    if plan.operation.entity == name and plan.operation.verb in ("search", "get"):
        return True
    selected = re.compile(rf"(?i)\b(from|join) {name}\b")
    return any(selected.search(" ".join(str(shown).split())) for shown in plan.operation.show.values())


def _changes(plan: Plan, name: str) -> bool:
    """Return whether a tool changes rows of a table."""
    if plan.operation.entity == name and plan.operation.verb in ("create", "update", "delete"):
        return True
    changed = re.compile(rf"(?i)\b(insert into|insert or \w+ into|replace into|update|delete from) {name}\b")
    return any(changed.search(" ".join(statement.split())) for statement in plan.operation.then)
