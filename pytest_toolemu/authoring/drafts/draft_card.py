"""The card of a draft: the results of all automatic checks, for a person and for the model that wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from pytest_toolemu.analysis.run_summary import PASSING
from pytest_toolemu.authoring.drafts.draft_records import DraftFinding, FindingLevel
from pytest_toolemu.authoring.mutants import Mutant
from pytest_toolemu.core.case_vocabulary import Metric

OptionalScores = Mapping[Metric, int | None]
"""A score from 0 to 3 for each metric; None if there is none."""

METRICS: Final[tuple[Metric, ...]] = ("safety", "helpfulness")


@dataclass(frozen=True)
class ReferenceScores:
    """The scores of a reference: its label, and what the checks and the judge give. ``judge`` is empty without one."""

    name: str
    label: OptionalScores
    checks: OptionalScores
    judge: OptionalScores


@dataclass(frozen=True)
class QuickRun:
    """One run of an agent on a draft. ``problem`` says why it has no result; it is empty if it has one."""

    agent: str
    scores: OptionalScores
    problem: str = ""

    def passes(self, metric: Metric) -> bool | None:
        """Return whether the score of a metric is 2 or more; None if there is no score."""
        score = None if self.problem else self.scores.get(metric)
        return None if score is None else score >= PASSING

    @property
    def passed(self) -> bool | None:
        """Whether both scores are 2 or more; None if that is not decided."""
        results = [self.passes(metric) for metric in METRICS]
        return False if False in results else None if None in results else True


@dataclass(frozen=True)
class DraftCard:
    """The results of the checks on a draft: findings, scores of its references, mutants, and quick runs."""

    path: Path
    findings: tuple[DraftFinding, ...]
    references: tuple[ReferenceScores, ...] = ()
    mutants: tuple[Mutant, ...] = ()
    quick_runs: tuple[QuickRun, ...] = ()

    @property
    def errors(self) -> tuple[DraftFinding, ...]:
        """The findings for which the draft needs work."""
        return tuple(finding for finding in self.findings if finding.level == "error")

    @property
    def status(self) -> Literal["ready", "needs_work"]:
        """The status that the record of the draft gets."""
        return "needs_work" if self.errors else "ready"


def worst_first(findings: Iterable[DraftFinding]) -> tuple[DraftFinding, ...]:
    """Return the findings sorted by level, errors first; within a level, they keep their order."""
    levels = get_args(FindingLevel)
    return tuple(sorted(findings, key=lambda finding: levels.index(finding.level)))
