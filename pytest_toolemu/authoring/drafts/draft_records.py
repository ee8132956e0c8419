"""The records of drafts: what was asked, what the checks found, and what a person decided."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, Field, model_validator

from pytest_toolemu.authoring.drafts.card_results import CardResults
from pytest_toolemu.core.toolkit import Text
from pytest_toolemu.formats.identifiers import CaseId, ContentHash
from pytest_toolemu.formats.yaml_document import Record

RECORD_VERSION: Final = 1
"""Version of the format of draft records."""

DraftKind = Literal["toolkit", "red-team", "standard", "benign-twin", "paraphrase", "translation", "harder"]
"""What a draft is: a toolkit, a new case, or a variant of a case (the last four)."""

DraftStatus = Literal["drafted", "ready", "needs_work", "accepted", "rejected"]
"""``drafted`` until it is checked, then ``ready`` or ``needs_work``, until a person decides."""

FindingSource = Literal["lint", "references", "mutants", "world", "duplicates", "noact", "judge", "agent"]
"""The check that reports a finding."""

AskedSource = Literal["judge", "agent"]
"""The checks that ask models."""

FindingLevel = Literal["error", "warning", "note"]
"""An ``error`` makes a draft one that needs work."""


class DraftFinding(Record):
    """A result of a check on a draft. The message contains the value and the fix, so that a model can revise it."""

    source: FindingSource = Field(description="The check that reports it")
    rule: str = Field(description="Name of the rule, such as a lint rule")
    level: FindingLevel = Field(description="An error makes a draft one that needs work")
    place: str = Field(default="", description="Where in the file, such as references.safe.calls[1]; empty for all")
    message: str = Field(description="The problem and the fix")

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        return f"{self.level}: {place}{self.message} [{self.source}: {self.rule}]"


class ReviewDecision(Record):
    """What a person decided about a draft."""

    reviewer: Text = Field(description="Name of the person")
    date: AwareDatetime = Field(description="When it was decided")
    reason: str = Field(default="", description="Why the draft was rejected, or accepted in spite of errors")
    file: str | None = Field(default=None, description="The file in the suite, relative to its folder; if accepted")


class DraftRecord(Record):
    """The record of a draft, next to it in ``NAME.draft.json``."""

    version: Literal[1] = Field(default=RECORD_VERSION, description="Version of this format")
    kind: DraftKind = Field(description="What the draft is")
    name: CaseId = Field(description="ID of the case, or name of the toolkit")
    model: Text = Field(description="The model that wrote the draft, as PROVIDER:NAME")
    prompt_hash: ContentHash = Field(description="SHA-256 of the prompts")
    asked: dict[str, Any] = Field(default={}, description="What was asked, by parameter")
    stages: tuple[str, ...] = Field(default=(), description="Stored outputs of the stages, relative to the folder")
    created: AwareDatetime = Field(description="When the draft was written")
    origin: CaseId | None = Field(default=None, description="ID of the case of which this one is a variant")
    fingerprint: ContentHash = Field(description="SHA-256 of the draft's texts without case, punctuation, and numbers")
    revisions: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Number of times that findings were sent back to the model"
    )
    status: DraftStatus = Field(default="drafted", description="Where the draft is between model and suite")
    checked: ContentHash | None = Field(
        default=None, description="SHA-256 of the text and the toolkits that were checked; null before the first check"
    )
    models_asked: dict[AskedSource, str] = Field(
        default={}, description="The judge and the agent that were asked about the checked text"
    )
    findings: tuple[DraftFinding, ...] = Field(default=(), description="What the checks found")
    results: CardResults | None = Field(default=None, description="The other results of the checks; null before them")
    decision: ReviewDecision | None = Field(default=None, description="What a person decided; null before that")

    @property
    def is_toolkit(self) -> bool:
        """Whether the draft is a toolkit. Otherwise it is a case."""
        return self.kind == "toolkit"

    @property
    def is_decided(self) -> bool:
        """Whether a person accepted or rejected the draft."""
        return self.status in ("accepted", "rejected")

    @model_validator(mode="after")
    def _decided_by_a_person(self) -> DraftRecord:
        if self.is_decided != (self.decision is not None):
            problem = "no decision is recorded" if self.is_decided else "a decision is recorded"
            raise ValueError(f"the status is {self.status!r}, but {problem}; change one of them")
        return self
