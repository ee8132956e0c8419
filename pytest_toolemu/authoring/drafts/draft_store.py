"""A folder of drafts: ``cases/``, ``toolkits/``, and a record next to each file.

    drafts/cases/ID.toolemu.yaml            drafts/cases/ID.draft.json
    drafts/toolkits/NAME.toolkit.yaml       drafts/toolkits/NAME.draft.json
    drafts/rejected/cases/ID.toolemu.yaml   drafts/rejected/cases/ID.draft.json

An accepted draft moves into the suite; its record stays. A rejected one is kept, so that it is not drafted again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, Field

from pytest_toolemu.core.case import DRAFT_MARK, DRAFT_SUFFIX
from pytest_toolemu.core.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.core.case_loading import forget_toolkit_folders
from pytest_toolemu.core.case_vocabulary import METRICS, Metric, Score
from pytest_toolemu.core.run import PASSING, json_text
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit import Text
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.file_access import read_record, write_for_user
from pytest_toolemu.formats.identifiers import CaseId, ContentHash, case_id_problem
from pytest_toolemu.formats.yaml_document import Document, Record, show

_REJECTED: Final = "rejected"
_DIGITS: Final = re.compile(r"\d+")
_BETWEEN: Final = re.compile(r"[\W_]+")


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


class CheckResults(Record):
    """What the checks found besides findings: scores of references, mutants, and quick runs; empty for a toolkit."""

    references: tuple[ReferenceScores, ...] = Field(default=(), description="Scores of each reference")
    mutants: Count = Field(default=0, description="Number of changed references and checks")
    noticed: Count = Field(default=0, description="Number of mutants that change a score or a decision")
    quick_runs: tuple[QuickRun, ...] = Field(default=(), description="Runs of an idle and a cheap agent")


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
    results: CheckResults | None = Field(default=None, description="The other results of the checks; null before them")
    decision: ReviewDecision | None = Field(default=None, description="What a person decided; null before that")

    @property
    def is_toolkit(self) -> bool:
        """Whether the draft is a toolkit. Otherwise it is a case."""
        return self.kind == "toolkit"

    @property
    def is_decided(self) -> bool:
        """Whether a person accepted or rejected the draft."""
        return self.status in ("accepted", "rejected")


@dataclass(frozen=True)
class Draft:
    """A draft: its file, which has moved if the draft was accepted, and its record."""

    path: Path
    record: DraftRecord

    @property
    def record_path(self) -> Path:
        """The file of the record."""
        return self.path.with_name(self.record.name + DRAFT_SUFFIX)


class DraftStore:
    """Reads and writes a folder of drafts. Each file is written completely or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path_of(self, kind: DraftKind, name: str, *, rejected: bool = False) -> Path:
        """Return the file of a draft. Raise UsageError for a name that is not valid, such as one with a slash."""
        if problem := case_id_problem(name):
            raise UsageError(f"{show(name)} cannot be the name of a draft: {problem}")
        root = self.folder / _REJECTED if rejected else self.folder
        folder, suffix = ("toolkits", TOOLKIT_SUFFIX) if kind == "toolkit" else ("cases", CASE_SUFFIX)
        return root / folder / f"{name}{suffix}"

    def put(self, text: str, record: DraftRecord) -> Draft:
        """Write a draft and its record, or replace an undecided draft of this name, and return it.

        Raise UsageError if the name is not valid, a person decided on a draft of this name, or a file that is not a
        draft has it.
        """
        draft = Draft(self.path_of(record.kind, record.name), record)
        earlier = self.find(record.kind, record.name)
        if earlier is not None and earlier.record.is_decided:
            raise UsageError(f"{draft.path}: a draft of this name was {earlier.record.status}; choose another name")
        if earlier is None and draft.path.exists():
            raise UsageError(f"{draft.path}: exists and has no record, so it is not a draft; choose another name")
        # The record first: a file without a record would be taken for the work of a person.
        self._write(draft.record_path, record.model_dump_json(indent=2) + "\n")
        self._write(draft.path, text.removesuffix("\n") + "\n" + DRAFT_MARK)
        return draft

    def update(self, draft: Draft, **changes: Any) -> Draft:
        """Change fields of a record, and return the draft with them."""
        record = DraftRecord.model_validate({**dict(draft.record), **changes})
        updated = Draft(draft.path, record)
        self._write(updated.record_path, record.model_dump_json(indent=2) + "\n")
        return updated

    def reject(self, draft: Draft, decision: ReviewDecision) -> Draft:
        """Record why a draft is rejected, and move it to ``rejected/``."""
        moved = Draft(self.path_of(draft.record.kind, draft.record.name, rejected=True), draft.record)
        moved = self.update(moved, status="rejected", decision=decision)
        draft.path.replace(moved.path)
        draft.record_path.unlink()
        return moved

    def accept(self, draft: Draft, decision: ReviewDecision) -> Draft:
        """Record that a draft is accepted, and remove its file here: the caller has written it into the suite."""
        accepted = self.update(draft, status="accepted", decision=decision)
        draft.path.unlink(missing_ok=True)
        return accepted

    def find(self, kind: DraftKind, name: str) -> Draft | None:
        """Return the draft of this name; None if there is none."""
        for rejected in (False, True):
            path = self.path_of(kind, name, rejected=rejected)
            record = path.with_name(name + DRAFT_SUFFIX)
            if record.is_file():
                return self._read(record)
        return None

    def undecided(self) -> tuple[Draft, ...]:
        """Return the drafts that wait for a person: toolkits, new cases, then twins and variants.

        A draft whose file a person deleted does not wait.
        """
        drafts = (draft for draft in self.drafts() if not draft.record.is_decided and draft.path.is_file())
        return tuple(sorted(drafts, key=lambda draft: draft.record.kind not in ("toolkit", "red-team", "standard")))

    def drafts(self) -> Iterator[Draft]:
        """Yield all drafts: toolkits before the cases that may use them, then rejected ones, each sorted by name.

        Raise UsageError for a record that cannot be read.
        """
        for folder in (self.folder, self.folder / _REJECTED):
            for part in ("toolkits", "cases"):
                for path in sorted((folder / part).glob(f"*{DRAFT_SUFFIX}")):
                    yield self._read(path)

    def rejected_before(self, text: str, kind: DraftKind) -> Draft | None:
        """Return the rejected draft with the same fingerprint as this text; None if there is none."""
        own = text_fingerprint(text, kind)
        rejected = (draft for draft in self.drafts() if draft.record.status == "rejected")
        return next((draft for draft in rejected if draft.record.fingerprint == own), None)

    def _read(self, path: Path) -> Draft:
        record = read_record(
            path, DraftRecord, expected="the record of a draft", remedy="restore it, or delete it with its draft"
        )
        return Draft(self.path_of(record.kind, record.name, rejected=record.status == "rejected"), record)

    def _write(self, path: Path, text: str) -> None:
        is_new = not path.parent.is_dir()
        write_for_user(path, text, "free disk space, or choose another folder")
        if is_new:
            forget_toolkit_folders()  # it may be a new folder of toolkits


def text_fingerprint(text: str, kind: DraftKind) -> str:
    """Return the SHA-256 of the texts that make a draft what it is: a rejected draft is recognized by it.

    These are the toolkits and instruction of a case, or the description and tools of a toolkit. Letter case,
    punctuation, and the values of numbers are ignored.
    """
    try:
        content = Document.parse(text, Path("draft")).value
    except DocumentError:
        content = None
    content = content if isinstance(content, dict) else {"": text}
    main, members = ("description", "tools") if kind == "toolkit" else ("instruction", "toolkits")
    if isinstance(content.get(main), str) and isinstance(content.get(members), list):
        names = [each.get("name", "") if isinstance(each, dict) else each for each in content[members]]
        content = [_folded(content[main]), *sorted(map(_folded, names))]
    return hashlib.sha256(json_text(content).encode()).hexdigest()


def _folded(text: object) -> str:
    return _BETWEEN.sub(" ", _DIGITS.sub("0", str(text).casefold())).strip()
