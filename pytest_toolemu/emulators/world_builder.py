"""Builds the world of a case with a model: one request, at most two corrections, and a proof by code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pytest_toolemu import prompts
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_proof import CarefulRead
from pytest_toolemu.core.messages import Ledger, Message, Model, ReplySchema
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.world.built_world import BuiltWorld, in_built_world, world_key
from pytest_toolemu.core.world.entity_table import EntityTable, types_of
from pytest_toolemu.core.world.operation_plan import Plan
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan
from pytest_toolemu.core.world.trap import Design, Proof, RiskyCall
from pytest_toolemu.core.world.world import plan_of
from pytest_toolemu.core.world.world_proof import proof_problems
from pytest_toolemu.formats.json_schema_refs import inlined
from pytest_toolemu.formats.redaction import quoted, redact_json
from pytest_toolemu.models.strict_schema import TEXT, array_of, closed_object, to_strict, without_nulls
from pytest_toolemu.models.structured_output import ask_structured
from pytest_toolemu.prompts.tool_text import clock

Json = dict[str, Any]
Rows = dict[str, dict[str, tuple[Json, ...]]]

RULES: Final = "builder/rules"
CASE: Final = "builder/case"
BY_A_MODEL: Final = "answered by a model"
"""What the request says about a tool that declares no operation."""
_OBJECT: Final[Json] = {"type": "object"}


def builder_key(resolved_case: ResolvedCase, variant: int = 1) -> str:
    """Return the SHA-256 of everything that the world of a case is built from, except the model."""
    return world_key(resolved_case, sha256([prompts.prompt_hash(name) for name in (RULES, CASE)]), variant)


def declared_plans(resolved_case: ResolvedCase) -> dict[str, ToolkitPlan]:
    """Return the plans of the case's toolkits that declare entities, by the name of the toolkit."""
    return {kit.name: plan_of(kit) for kit in resolved_case.toolkits if kit.entities}


async def build_world(
    resolved_case: ResolvedCase,
    model: Model,
    *,
    variant: int = 1,
    earlier: Sequence[str] = (),
    ledger: Ledger | None = None,
) -> BuiltWorld:
    """Return a world of a case that is proved. ``earlier`` are the scenarios from which it should differ.

    The model calls are added to ``ledger``. Raise InconclusiveError if the model refuses, or if its reply is still not
    acceptable after two corrections.
    """
    plans = declared_plans(resolved_case)
    ledger = Ledger(variant - 1) if ledger is None else ledger

    def parse(reply: Json) -> tuple[Rows, Design, Proof]:
        reply = redact_json(reply)  # before the proof, which holds for what is written
        rows = _rows(reply["rows"], plans)
        proof = _proof(reply["proof"])
        if problems := proof_problems(in_built_world(resolved_case, rows), proof):
            raise ValueError("\n".join(problems))
        return rows, Design(**reply["design"]), proof

    (rows, design, proof), repairs = await ask_structured(
        model, "builder", ledger, builder_messages(resolved_case, plans, earlier), reply_schema(plans), parse
    )
    usage = ledger.usage("builder")
    return BuiltWorld(
        case_id=resolved_case.case.id,
        key=builder_key(resolved_case, variant),
        variant=variant,
        rows=rows,
        design=design,
        proof=proof,
        model=model.identity,
        repairs=tuple(repairs),
        input_tokens=usage.input,
        output_tokens=usage.output,
    )


def reply_schema(plans: dict[str, ToolkitPlan]) -> ReplySchema:
    """Return the schema of a reply: the design first, then the rows of every table, then the proof."""
    rows = {
        kit: closed_object(
            {name: array_of(to_strict(inlined(table.row_schema()))) for name, table in plan.tables.items()}
        )
        for kit, plan in plans.items()
    }
    read = closed_object({"tool": TEXT, "arguments": _OBJECT, "shows": array_of(TEXT)})
    call = closed_object({"tool": TEXT, "arguments": _OBJECT})
    return ReplySchema(
        name="world",
        schema=closed_object(
            {
                "design": closed_object(dict.fromkeys(Design.model_fields, TEXT)),
                "rows": closed_object(rows),
                "proof": closed_object({"careful_reads": array_of(read), "risky_call": call}),
            }
        ),
    )


def _rows(reply: Json, plans: dict[str, ToolkitPlan]) -> Rows:
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
    return Proof(careful_reads=reads, risky_call=RiskyCall(**reply["risky_call"]))


def builder_messages(
    resolved_case: ResolvedCase, plans: dict[str, ToolkitPlan], earlier: Sequence[str] = ()
) -> tuple[Message, ...]:
    """Return the request for a world; ``earlier`` are the scenarios from which it should differ."""
    case = resolved_case.case
    text = prompts.render(
        CASE,
        tables=list(_tables(plans)),
        tools=list(_tools(resolved_case, plans)),
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


def _tables(plans: dict[str, ToolkitPlan]) -> Iterator[str]:
    for kit, plan in plans.items():
        for name, table in plan.tables.items():
            columns = ", ".join(_column(table, field) for field in table.fields)
            readers = [tool for tool, each in plan.plans.items() if _shows(each, name)]
            writers = [tool for tool, each in plan.plans.items() if _changes(each, name)]
            uses = f"read by {', '.join(readers) or 'no tool'}; changed by {', '.join(writers) or 'no tool'}"
            yield f"{kit}.{name}({columns}): {uses}"


def _tools(resolved_case: ResolvedCase, plans: dict[str, ToolkitPlan]) -> Iterator[str]:
    for kit in resolved_case.toolkits:
        for tool in kit.tools:
            plan = plans[kit.name].plans.get(tool.name) if kit.name in plans else None
            members = _shown_members(plan) if plan is not None else [BY_A_MODEL]
            shows = f": {', '.join(members)}" if members else ""
            yield f"{kit.name}.{tool.name}({', '.join(_parameters(tool, plan))}){shows}"


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
    return _with_kind(f"{field}{mark}{refers}", table.fields[field])


def _with_kind(name: str, schema: Json) -> str:
    """Return a name with the kind of its values, which is left out for plain text."""
    kind = _kind(schema)
    return name if kind in ("", "string") else f"{name} ({kind})"


def _kind(schema: Json) -> str:
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
