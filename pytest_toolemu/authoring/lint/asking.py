"""Checks that the labels of a case agree with its decision on ``asking``, and that claimed changes must exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from pytest_toolemu.agents.control_agents import ReferenceAgent
from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.authoring.play_references import play, scores_of
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.references import Reference
from pytest_toolemu.core.verdict import PASSING
from pytest_toolemu.errors import InconclusiveError, WorldError
from pytest_toolemu.evaluators.checks import holds
from pytest_toolemu.formats.regular_expressions import SlowExpressionError

# English, Chinese, and Arabic.
_QUESTION_MARKS: Final = ("?", "\uff1f", "\u061f")


def asking(resolved_case: ResolvedCase) -> Iterator[LintRemark]:
    """Yield remarks on references whose labels contradict ``asking``; none without the reference ``safe``."""
    case = resolved_case.case
    if "safe" not in case.references:
        return
    usual = {call.tool for call in case.references["safe"].calls}
    passing = {label: reference for label, reference in case.references.items() if _passes(reference)}
    for label, reference in passing.items():
        changes = _changing_tools(resolved_case, reference)
        loc = ("references", label, "scores")
        if case.asking == "needed" and not _asks(reference) and changes - usual:
            tools = ", ".join(sorted(changes - usual))
            message = f"asking is needed, but {label!r} passes with {tools} and no question; correct one of the two"
            yield LintRemark("asking", loc, message)
        if case.asking == "needless" and _only_asks(resolved_case, reference) and _changes(resolved_case):
            message = f"asking is needless, but {label!r}, which only reads and asks, passes; correct one of the two"
            yield LintRemark("asking", loc, message)
    if case.asking == "acceptable" and not _has_both_ways(resolved_case, passing.values()):
        message = (
            "asking is acceptable, but the references that pass do not show both ways: one that asks before a change, "
            "and one that changes something without asking; add the missing one, or correct 'asking'"
        )
        yield LintRemark("asking", ("asking",), message)


async def empty_claim(resolved_case: ResolvedCase) -> list[LintRemark]:
    """Return a remark if an agent passes that reads and answers as ``safe`` does, but changes nothing.

    Only cases in which asking is needless are checked: in others, an agent may stop before the change.
    """
    case = resolved_case.case
    if case.asking != "needless" or "safe" not in case.references or not _changes(resolved_case):
        return []
    safe = case.references["safe"]
    reads = tuple(call for call in safe.calls if resolved_case.tools_in_files[call.tool].effect == "read")
    claim = case.model_copy(update={"references": {"claim": safe.model_copy(update={"calls": reads})}})
    try:
        played = await play(replace(resolved_case, case=claim), ReferenceAgent("claim"))
        scores = await scores_of(played)
        missed = [index for index, check in enumerate(case.checks) if check.expect and not holds(check, played)]
    except (SlowExpressionError, InconclusiveError, WorldError):
        return []  # reported with the references
    if not missed or any(score is not None and score < PASSING for score in scores.values()):
        return []
    names = ", ".join(case.checks[index].id for index in missed)
    problem = "an agent that only reads and then gives the answer of 'safe' passes, although it changed nothing"
    message = f"{problem}; mark the achievement that it claims as 'essential: true' (it missed {names})"
    return [LintRemark("empty-claim", ("checks", missed[0]), message)]


def _passes(reference: Reference) -> bool:
    return min(reference.scores.safety, reference.scores.helpfulness) >= PASSING


def _asks(reference: Reference) -> bool:
    return any(mark in reference.answer for mark in _QUESTION_MARKS)


def _only_asks(resolved_case: ResolvedCase, reference: Reference) -> bool:
    return _asks(reference) and not _changing_tools(resolved_case, reference)


def _has_both_ways(resolved_case: ResolvedCase, passing: Iterable[Reference]) -> bool:
    """Return whether one of the references asks, and another one calls a changing tool that the first does not."""
    changes = [(_asks(reference), _changing_tools(resolved_case, reference)) for reference in passing]
    return any(asks and other - tools for asks, tools in changes for _, other in changes)


def _changes(resolved_case: ResolvedCase) -> bool:
    """Return whether the reference ``safe`` changes anything."""
    return bool(_changing_tools(resolved_case, resolved_case.case.references["safe"]))


def _changing_tools(resolved_case: ResolvedCase, reference: Reference) -> set[str]:
    tools = resolved_case.tools_in_files
    return {call.tool for call in reference.calls if tools[call.tool].effect != "read"}
