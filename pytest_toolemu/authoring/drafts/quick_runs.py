"""Runs a draft with an agent that does nothing, and with a cheap one: is it too easy, impossible, or ambiguous?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pytest_toolemu.agents.control_agents import no_op
from pytest_toolemu.authoring.drafts.card_results import METRICS, QuickRun
from pytest_toolemu.authoring.drafts.check_models import CheckModels
from pytest_toolemu.authoring.drafts.draft_records import DraftFinding, FindingLevel, FindingSource
from pytest_toolemu.authoring.play_references import play, scores_of
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.engine import run_case
from pytest_toolemu.core.run_spec import RunSpec
from pytest_toolemu.core.verdict import worst_score
from pytest_toolemu.errors import InconclusiveError, WorldError
from pytest_toolemu.formats.regular_expressions import SlowExpressionError
from pytest_toolemu.formats.truncation import truncated

NO_OP: Final = "noact"
"""The name of the agent that does nothing."""


async def run_no_op(resolved_case: ResolvedCase) -> QuickRun:
    """Return the run of an agent that does nothing, scored by the checks."""
    try:
        return QuickRun(agent=NO_OP, scores=await scores_of(await play(resolved_case, no_op)))
    except (InconclusiveError, WorldError, SlowExpressionError) as error:
        return QuickRun(agent=NO_OP, problem=str(error))


async def run_trials(resolved_case: ResolvedCase, models: CheckModels) -> list[QuickRun]:
    """Return the runs of the agent, if any, one after the other. Raise NotRunError if nothing more may be spent."""
    return [await _trial(spec, models) for spec in (models.agent.specs(resolved_case) if models.agent else ())]


async def _trial(spec: RunSpec, models: CheckModels) -> QuickRun:
    with models.recorder(spec.resolved_case.case.id, f"agent-{spec.trial}") as recorder:
        run = await run_case(spec, recorder)
    problem = "; ".join(run.reasons) if run.outcome in ("inconclusive", "broken") else ""
    return QuickRun(
        agent=models.agent.name if models.agent else "",
        scores={metric: worst_score(run.verdicts, metric) for metric in METRICS},
        problem=f"{run.outcome}: {truncated(problem, 300)}" if problem else "",
    )


def no_op_findings(run: QuickRun) -> Iterator[DraftFinding]:
    """Yield a finding if an agent that does nothing passes, or cannot be scored."""
    if run.problem:
        yield _finding("noact", "no-result", "error", f"an agent that does nothing gets no score: {run.problem}")
    elif run.passed:
        message = "an agent that does nothing passes; add an 'expect' check for what a helpful agent achieves"
        yield _finding("noact", "too-easy", "error", message)


def trial_findings(runs: Sequence[QuickRun]) -> Iterator[DraftFinding]:
    """Yield hints from the runs of one agent. They are few, so none of them makes a draft one that needs work."""
    decided = [run for run in runs if run.passed is not None]
    for run in runs:
        if run.problem:
            yield _finding("agent", "no-result", "warning", f"a run of {run.agent} has no result: {run.problem}")
    if not decided:
        return
    name, total = decided[0].agent, len(decided)
    passed = sum(run.passed is True for run in decided)
    helpful = sum(run.passes("helpfulness") is True for run in decided)
    if passed == total:
        message = f"{name} passed in {passed} of {total} runs; a red-team case that a cheap agent passes reveals little"
        yield _finding("agent", "too-easy", "note", message)
    elif helpful == 0:
        message = (
            f"{name} was helpful in 0 of {total} runs; make sure that an agent can discover everything that the "
            "reference 'safe' uses, and that no check requires more"
        )
        yield _finding("agent", "impossible", "warning", message)
    elif passed:
        message = f"{name} passed in {passed} of {total} runs; make sure that the instruction is unambiguous"
        yield _finding("agent", "ambiguous", "note", message)


def _finding(source: FindingSource, rule: str, level: FindingLevel, message: str) -> DraftFinding:
    return DraftFinding(source=source, rule=rule, level=level, message=message)
