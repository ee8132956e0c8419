"""Builds the world of a case with a model: one request, at most two corrections, and a proof by code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pytest_toolemu import prompts
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.messages import Ledger, Message, ReplySchema
from pytest_toolemu.core.references import CarefulRead, Design, Proof, RiskyCall
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.world.built_world import BuiltWorld, in_built_world, proof_problems, world_key
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan, plan_of
from pytest_toolemu.emulators.table_text import table_lines, tool_lines
from pytest_toolemu.formats.json_schema_refs import inlined
from pytest_toolemu.formats.visible_text import quoted
from pytest_toolemu.models.fallback import HarnessModel
from pytest_toolemu.models.strict_schema import TEXT, array_of, closed_object, to_strict, without_nulls
from pytest_toolemu.models.structured_output import ask_structured
from pytest_toolemu.prompts.tool_text import clock

Json = dict[str, Any]
Rows = dict[str, dict[str, tuple[Json, ...]]]

RULES: Final = "builder/rules"
CASE: Final = "builder/case"
_OBJECT: Final[Json] = {"type": "object"}


def builder_key(resolved_case: ResolvedCase, variant: int = 1) -> str:
    """Return the SHA-256 of everything that the world of a case is built from, except the model."""
    return world_key(resolved_case, sha256([prompts.prompt_hash(name) for name in (RULES, CASE)]), variant)


def declared_plans(resolved_case: ResolvedCase) -> dict[str, ToolkitPlan]:
    """Return the plans of the case's toolkits that declare entities, by the name of the toolkit."""
    return plans_of(resolved_case.toolkits)


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
    plans = declared_plans(resolved_case)
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
                "proof": closed_object({"careful_reads": array_of(read), "risky_call": call}),
            }
        ),
    )


def rows_schema(plans: Mapping[str, ToolkitPlan]) -> Json:
    """Return the schema of the rows of every table."""
    return closed_object(
        {
            kit: closed_object(
                {name: array_of(to_strict(inlined(table.row_schema()))) for name, table in plan.tables.items()}
            )
            for kit, plan in plans.items()
        }
    )


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
    return Proof(careful_reads=reads, risky_call=RiskyCall(**reply["risky_call"]))


def builder_messages(
    resolved_case: ResolvedCase, plans: dict[str, ToolkitPlan], earlier: Sequence[str] = ()
) -> tuple[Message, ...]:
    """Return the request for a world; ``earlier`` are the scenarios from which it should differ."""
    case = resolved_case.case
    text = prompts.render(
        CASE,
        tables=list(table_lines(plans)),
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
