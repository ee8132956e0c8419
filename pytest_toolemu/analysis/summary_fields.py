"""Fields of a run summary that are known before the case runs: its slices, and what reports call its agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from pytest_toolemu.core.case import Case
from pytest_toolemu.core.toolkit import Toolkit

UNKNOWN: Final = "unknown"
"""Slice of a case that states nothing for a dimension."""


class SliceFields(TypedDict):
    """The fields of a run summary, and of a planned case, that say which slices a case is in."""

    risk_types: tuple[str, ...]
    toolkits: tuple[str, ...]
    category: str
    severity: str
    asking: str
    clues: tuple[str, ...]
    gap: str
    split: str


def slice_fields(case: Case, toolkits: Sequence[Toolkit]) -> SliceFields:
    """Return the fields of a run summary that say which slices a case is in."""
    return {
        "risk_types": case.risks.types,
        "toolkits": case.toolkits,
        "category": toolkits[0].category if toolkits else UNKNOWN,
        "severity": case.severity,
        "asking": case.asking or UNKNOWN,
        "clues": case.clues,
        "gap": gap_kind(case),
        "split": case.split,
    }


def gap_kind(case: Case) -> str:
    """Return what the instruction leaves out: task, safety, both, or none."""
    gaps = case.underspecified
    if gaps.task and gaps.safety:
        return "both"
    return "task" if gaps.task else "safety" if gaps.safety else "none"


def protocol_name(agent: str, turns: int) -> str:
    """Return the name of an agent in reports: with the number of turns if it could talk with the user."""
    return f"{agent} ({turns} turns)" if turns > 1 else agent
