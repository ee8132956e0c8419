"""Makes the careful reads of a case, to see whether they show what it says, and whether an agent can make them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.authoring.play_references import play
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.references import CarefulRead, missing_texts
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.core.trajectory import Step
from pytest_toolemu.core.world.world import World
from pytest_toolemu.errors import InconclusiveError, WorldError
from pytest_toolemu.formats.regular_expressions import SlowExpressionError
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.yaml_document import Loc, show

_MAX_SHOWN: Final = 300


@dataclass(frozen=True)
class _CarefulAgent:
    """Makes the careful reads in order."""

    reads: tuple[CarefulRead, ...]

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:  # noqa: ARG002  (an agent takes both)
        for read in self.reads:
            await toolbox.call(toolbox.resolved_case.callable_name(read.tool), read.arguments)
        return ""


async def careful_reads(resolved_case: ResolvedCase) -> list[LintRemark]:
    """Return remarks on careful reads that prove nothing; none for a case without a proof."""
    proof = resolved_case.case.proof
    if proof is None or not proof.careful_reads:
        return []
    try:
        trajectory = await play(resolved_case, _CarefulAgent(proof.careful_reads))
        keys = _keys(World.of(resolved_case))
    except (InconclusiveError, SlowExpressionError, WorldError) as error:
        return [LintRemark("proof", ("proof", "careful_reads"), f"the careful reads cannot be executed: {error}")]
    remarks = list(_read_remarks(resolved_case, proof.careful_reads, trajectory.steps, keys))
    texts = {text for read in proof.careful_reads for text in read.shows}
    if texts and texts <= keys:
        message = "only keys of rows are named, and keys give no reason; name a text in a result that gives one"
        remarks.append(LintRemark("proof", ("proof", "careful_reads"), message))
    if len(trajectory.steps) < len(proof.careful_reads):
        message = f"there are more than {len(trajectory.steps)} calls, after which a session stops an agent; name fewer"
        remarks.append(LintRemark("proof", ("proof", "careful_reads", len(trajectory.steps)), message))
    return remarks


def _read_remarks(
    resolved_case: ResolvedCase, reads: tuple[CarefulRead, ...], steps: list[Step], keys: set[str]
) -> Iterator[LintRemark]:
    case = resolved_case.case
    seen: list[Any] = [case.instruction, case.user.name, case.user.email]
    for index, (read, step) in enumerate(zip(reads, steps, strict=False)):
        loc: Loc = ("proof", "careful_reads", index)
        for value in _texts(read.arguments):
            if value in keys and missing_texts(seen, [value]):
                problem = f"neither the user nor an earlier read gives {show(value)}, so an agent cannot make this call"
                yield LintRemark("proof", (*loc, "arguments"), f"{problem}; put the read that shows it before this one")
        if failure := _failure(step):
            yield LintRemark("proof", loc, f"{read.tool}: {failure}")
        else:
            for place, text in _not_shown(case.instruction, read, step):
                yield LintRemark("proof", (*loc, "shows", *place), text)
        seen.append(step.observation.content)


def _failure(step: Step) -> str | None:
    """Return why the result of a call proves nothing."""
    if step.observation.is_error:
        return f"the call fails: {step.observation.text}; name a call that succeeds"
    if step.observation.source not in ("rows", "pinned"):
        return "neither rows nor pins answer the call, so agents get different results; add rows or a pin"
    return None


def _not_shown(instruction: str, read: CarefulRead, step: Step) -> Iterator[tuple[Loc, str]]:
    """Yield texts that the result lacks, or that an agent knows before the call."""
    if not read.shows:
        yield (), f"{read.tool}: no text is named; name what an agent learns from the result"
    for index, text in enumerate(read.shows):
        if missing_texts(step.observation.content, [text]):
            result = truncated(step.observation.text, _MAX_SHOWN)
            yield (index,), f"the result of {read.tool} does not contain {show(text)}: {result}"
        elif not missing_texts([instruction, read.arguments], [text]):
            yield (index,), f"{show(text)} is known before the call; name a text that only the result contains"


def _keys(world: World) -> set[str]:
    """Return the keys of all rows at the beginning, as text."""
    return {
        str(row[table.key])
        for kit, plan in world.plans.items()
        for name, table in plan.tables.items()
        for row in world.beginning.initial[kit][name]
    }


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
    elif isinstance(value, str):
        yield value
