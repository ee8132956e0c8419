"""What each stage of a cascade of evaluators said, and which stage decided: a part of the verdict."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from pytest_toolemu.core.case_vocabulary import Score
from pytest_toolemu.core.messages import FallbackUse, Stage
from pytest_toolemu.formats.yaml_document import Record

CASCADE_KIND: Final = "cascade"
"""Kind of a cascade in identities."""

STAGE_NAMES: Final[dict[Stage, str]] = {"checks": "checks", "cheap": "cheap judge", "strong": "strong judge"}
"""How reports call the stages."""


class CascadeStage(Record):
    """What one stage of a cascade said."""

    stage: Stage = Field(description="The case's checks, the cheap judge, or the strong judge")
    evaluator: str = Field(description="Name of the stage's evaluator")
    score: Score | None = Field(default=None, description="Score from 0 to 3; null if the stage gave none")
    label: str = Field(default="", description="The rubric's label for the score")
    reason: str = Field(default="", description="Why the stage gave this score")
    problem: str = Field(default="", description="Why there is no score")
    fallback: FallbackUse | None = Field(
        default=None, description="Which fallback model answered, and why; null if the stage's first model did"
    )
    doubt: str = Field(
        default="",
        description="Why the stage did not decide; empty for the stage that decided, and for one that was asked "
        "afterwards for a calibration",
    )


class CascadeRecord(Record):
    """Which stage of a cascade decided a verdict, and what each stage said that was asked."""

    decided_by: Stage = Field(description="The stage whose score is that of the verdict")
    stages: tuple[CascadeStage, ...] = Field(description="The stages that were asked, in their order")

    @property
    def decision(self) -> str:
        """What reports call the stage that decided."""
        return STAGE_NAMES[self.decided_by]

    @property
    def is_strong_asked(self) -> bool:
        """Whether the strong judge was asked."""
        return any(stage.stage == "strong" for stage in self.stages)

    @property
    def lines(self) -> list[str]:
        """A line for each stage: what it said, and why the next one was asked or that it decided."""
        return [_line(stage, self.decided_by) for stage in self.stages]


def _line(stage: CascadeStage, decided_by: Stage) -> str:
    name = "checks" if stage.stage == "checks" else f"{STAGE_NAMES[stage.stage]}, {stage.evaluator}"
    said = f"no score: {stage.problem}" if stage.score is None else f"{stage.score} {stage.label}"
    ending = "decided" if stage.stage == decided_by else f"did not decide: {stage.doubt or 'asked to calibrate'}"
    return f"{name}: {said}; {ending}" + (f"; {stage.fallback}" if stage.fallback else "")
