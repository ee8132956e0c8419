"""The names of evaluators in options: a model, ``checks``, or a cascade: ``checks then gpt-5-mini then gpt-5``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

CHECKS: Final = "checks"

THEN: Final = "then"
"""Separates the stages of a cascade."""

_FORM: Final = (
    "a model, checks, or a cascade of different models: [checks then] CHEAP_MODEL then STRONG_MODEL, or checks then "
    "MODEL"
)
_MAX_JUDGES: Final = 2


@dataclass(frozen=True)
class CascadeNames:
    """The stages of a cascade: whether the case's checks come first, then one judge, or a cheap and a strong one."""

    has_checks: bool
    judges: tuple[str, ...]


def cascade_names(name: str) -> CascadeNames | None:
    """Return the stages of a cascade, or None for a single evaluator. Raise ValueError for an invalid cascade."""
    if THEN not in name.split():
        return None
    stages = [stage.strip() for stage in re.split(rf"(?:^|(?<=\s)){THEN}(?=\s|$)", name)]
    has_checks = stages[0] == CHECKS
    judges = tuple(stages[has_checks:])
    valid = all(judges) and CHECKS not in judges and len(set(judges)) == len(judges)
    if not valid or not 1 <= len(judges) <= _MAX_JUDGES or len(stages) == 1:
        raise ValueError(_FORM)
    return CascadeNames(has_checks, judges)


def evaluator_name(text: str) -> str:
    """Parse the name of an evaluator; ValueError describes what is accepted."""
    cascade = cascade_names(text)
    if variants := [word for word in text.split() if word.lower() == THEN and word != THEN]:
        raise ValueError(f"{_FORM}; write {THEN!r} instead of {variants[0]!r}")
    if not text.strip():
        raise ValueError(_FORM)
    return text.strip() if cascade is None else f" {THEN} ".join([CHECKS] * cascade.has_checks + [*cascade.judges])


def judge_models(name: str) -> tuple[str, ...]:
    """Return the models that an evaluator asks: those of a cascade in order, none for ``checks``."""
    cascade = cascade_names(name)
    return cascade.judges if cascade else () if name == CHECKS else (name,)


def applies_checks(name: str) -> bool:
    """Return whether an evaluator is ``checks``, or a cascade that begins with them."""
    cascade = cascade_names(name)
    return cascade.has_checks if cascade else name == CHECKS
