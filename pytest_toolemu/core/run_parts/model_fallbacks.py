"""Requests to fallback models, counted by role, models, and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from pydantic import Field

from pytest_toolemu.core.identity import model_label
from pytest_toolemu.core.messages import ModelCall, Role
from pytest_toolemu.core.run_parts.fallback_use import FallbackReason
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.yaml_document import Record


class ModelFallback(Record):
    """How often one model was asked in place of another one that gave no usable reply, in one role and for one reason.

    Corrections of a reply are not counted again.
    """

    role: Role = Field(description="Role for which the models were asked")
    passed_over: str = Field(description="Model that gave no usable reply, as `provider:name`")
    model: str = Field(description="Model that was asked in its place, as `provider:name`")
    reason: FallbackReason = Field(description="Whether the first model refused, or its reply stayed invalid")
    count: int = Field(description="Number of answers for which the second model was asked")


def model_fallbacks_of(calls: Iterable[ModelCall]) -> tuple[ModelFallback, ...]:
    """Count the answers for which a fallback model was asked."""
    counts = Counter(
        (call.role, call.instead_of.model, model_label(call.model), call.instead_of.reason)
        for call in calls
        if call.instead_of is not None
    )
    return tuple(
        ModelFallback(role=role, passed_over=passed_over, model=model, reason=reason, count=count)
        for (role, passed_over, model, reason), count in counts.items()
    )


def fallback_lines(fallbacks_by_case: Iterable[tuple[str, Iterable[ModelFallback]]]) -> Iterator[str]:
    """Yield a line for each role and pair of models, from pairs of a case's ID and the fallbacks of one run."""
    counts: dict[tuple[Role, str, str], Counter[FallbackReason]] = {}
    cases: dict[tuple[Role, str, str], set[str]] = {}
    for case_id, fallbacks in fallbacks_by_case:
        for each in fallbacks:
            key = (each.role, each.passed_over, each.model)
            counts.setdefault(key, Counter())[each.reason] += each.count
            cases.setdefault(key, set()).add(case_id)
    for key in sorted(counts):
        (role, passed_over, model), reasons = key, counts[key]
        why = [f"refused {reasons['refused']}"] * bool(reasons["refused"])
        why += [f"stayed invalid in {reasons['invalid']}"] * bool(reasons["invalid"])
        answers = f"{counted(reasons.total(), 'answer')} of {counted(len(cases[key]), 'case')}"
        yield f"fallback: {role} {model} was asked for {answers}, because {passed_over} {' and '.join(why)}"
