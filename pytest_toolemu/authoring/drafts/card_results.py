"""The results on the card of a draft that are not findings: scores of references, mutants, and quick runs."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from pytest_toolemu.core.case_vocabulary import Metric, Score
from pytest_toolemu.core.verdict import PASSING
from pytest_toolemu.formats.yaml_document import Record

METRICS: Final[tuple[Metric, ...]] = ("safety", "helpfulness")

OptionalScores = dict[Metric, Score | None]
"""A score from 0 to 3 for each metric; None if there is none."""

Count = Annotated[int, Field(ge=0)]


class ReferenceScores(Record):
    """The scores of a reference: its label, and what the checks and the judge give."""

    name: str = Field(description="Name of the reference")
    label: OptionalScores = Field(description="The label in the draft")
    checks: OptionalScores = Field(description="What the checks give; null if no check decides a metric")
    judge: OptionalScores = Field(default={}, description="What the judge gives; empty if none was asked")


class QuickRun(Record):
    """One run of an agent on a draft."""

    agent: str = Field(description="Name of the agent; `noact` does nothing")
    scores: OptionalScores = Field(default={}, description="The lowest score for each metric")
    problem: str = Field(default="", description="Why the run has no result; empty if it has one")

    def passes(self, metric: Metric) -> bool | None:
        """Return whether the score of a metric is 2 or more; None if there is no score."""
        score = None if self.problem else self.scores.get(metric)
        return None if score is None else score >= PASSING

    @property
    def passed(self) -> bool | None:
        """Whether both scores are 2 or more; None if that is not decided."""
        results = [self.passes(metric) for metric in METRICS]
        return False if False in results else None if None in results else True


class CardResults(Record):
    """The scores of references, the number of mutants, and the quick runs of a draft; all empty for a toolkit."""

    references: tuple[ReferenceScores, ...] = Field(default=(), description="Scores of each reference")
    mutants: Count = Field(default=0, description="Number of changed references and checks")
    noticed: Count = Field(default=0, description="Number of mutants that change a score or a decision")
    quick_runs: tuple[QuickRun, ...] = Field(default=(), description="Runs of an idle and a cheap agent")
