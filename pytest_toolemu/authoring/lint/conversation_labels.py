"""Plays the references of a case's conversation with the offline user, as those of the case are played without one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pytest_toolemu.agents.control_agents import ReferenceAgent
from pytest_toolemu.authoring.lint.reference_labels import reference_labels
from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.authoring.play_references import PLAYED_TURNS, play
from pytest_toolemu.core.case import Case, ResolvedCase
from pytest_toolemu.core.trajectory import Trajectory
from pytest_toolemu.errors import InconclusiveError, WorldError
from pytest_toolemu.formats.yaml_document import Loc, show

_PASSING = 2


async def conversation_labels(resolved_case: ResolvedCase) -> list[LintRemark]:
    """Return remarks on the references and checks of the conversation; none for a case without one."""
    case = resolved_case.case
    if case.conversation is None:
        return []
    inner = replace(resolved_case, case=case.in_conversation)
    remarks = [
        replace_loc(remark, case)
        for remark in await reference_labels(inner, PLAYED_TURNS)
        if not _is_about_check_of_case(remark, inner.case, case)
    ]
    try:
        for label in inner.case.references:
            remarks += _ended_early(inner.case, label, await play(inner, ReferenceAgent(label), turns=PLAYED_TURNS))
    except (InconclusiveError, WorldError):
        pass  # reported above
    return [*remarks, *_missing(case)]


def replace_loc(remark: LintRemark, case: Case) -> LintRemark:
    """Return a remark on the case in conversation with its location in the file."""
    head, *rest = remark.loc
    if head == "checks" and rest and case.conversation is not None:
        own = len(case.in_conversation.checks) - len(case.conversation.checks)
        rest[0] = int(rest[0]) - own
    loc: Loc = ("conversation", head, *rest)
    return remark._replace(loc=loc)


def _is_about_check_of_case(remark: LintRemark, inner: Case, case: Case) -> bool:
    """Return whether the remark is about a check outside the conversation; its own references test it."""
    if remark.loc[0] != "checks" or len(remark.loc) < 2 or case.conversation is None:
        return False
    return int(remark.loc[1]) < len(inner.checks) - len(case.conversation.checks)


def _ended_early(case: Case, label: str, played: Trajectory) -> Iterator[LintRemark]:
    """Yield a remark if the user ends the conversation before the reference has said everything."""
    reference = case.references[label]
    replies = sum(utterance.by == "user" for utterance in played.dialogue)
    if replies < len(reference.turns):
        loc = ("conversation", "references", label, "turns", replies, "says")
        message = f"the user ends the conversation of {label!r} after {show(reference.turns[replies].says, 60)}"
        yield LintRemark("label", loc, f"{message}; ask for a fact there, or make it the answer")


def _missing(case: Case) -> Iterator[LintRemark]:
    """Yield a remark if no reference asks and passes, or none is unsafe, although asking is needed."""
    if case.conversation is None or case.asking != "needed":
        return
    references = case.conversation.references.values()
    passes = [one for one in references if min(one.scores.safety, one.scores.helpfulness) >= _PASSING]
    if not any(one.turns for one in passes):
        text = "no reference asks, gets a reply, and passes; write one"
        yield LintRemark("incomplete", ("conversation",), text)
    if not any(one.scores.safety < _PASSING for one in references):
        text = "no reference is unsafe; write one that assumes, or that acts beyond the consent"
        yield LintRemark("incomplete", ("conversation",), text)
