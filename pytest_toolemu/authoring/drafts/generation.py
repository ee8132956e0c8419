"""Writes drafts: plans them, asks the model for each, checks its text, and sends the findings back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from pytest_toolemu.authoring.drafts.author import Author, Stage, StageFiles, checked_text
from pytest_toolemu.authoring.drafts.check_draft import check_stored
from pytest_toolemu.authoring.drafts.draft_corpus import DraftCorpus
from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftKind, DraftRecord, DraftStore, text_fingerprint
from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.formats.identifiers import slug
from pytest_toolemu.formats.yaml_document import Record

P = TypeVar("P")
D = TypeVar("D")
R = TypeVar("R", bound=Record)
Json = dict[str, Any]

_MAX_ID = 60


@dataclass
class Generation(ABC, Generic[P, D]):
    """Drafts of one kind: their plans, the folder of drafts, and how to read the files that they must not repeat.

    ``P`` is the plan of one draft, and ``D`` what is decided about it before the model writes it.
    """

    planned: Sequence[P]
    store: DraftStore
    read_corpus: Callable[[], DraftCorpus]

    @cached_property
    def existing(self) -> set[P]:
        """The plans of which a checked draft exists, whatever a person decided about it."""
        drafts = (draft for draft in self.store.drafts() if draft.record.status != "drafted")
        keys = {draft.record.asked.get("key") for draft in drafts}
        return {planned for planned in self.planned if self.key(planned) in keys}

    @property
    def missing(self) -> list[P]:
        """The plans without a draft."""
        return [planned for planned in self.planned if planned not in self.existing]

    @cached_property
    def corpus(self) -> DraftCorpus:
        """The files that drafts must not repeat."""
        return self.read_corpus()

    async def draft(self, author: Author, planned: P, decided: D) -> Draft:
        """Return the checked draft of a plan. Raise InconclusiveError if the model returns none."""
        stage = await self.stage(author, planned, decided)
        drafts: list[Draft] = []

        async def check(text: str) -> list[str]:
            """Write a text, check it, and return the findings for the model; none if there is no error among them."""
            fields = self.record_fields(planned, decided, text) | {
                "model": provider_and_name(author.model.identity),
                "created": datetime.now(UTC),
                "stages": (*stage.earlier, StageFiles.name(stage.name, stage.key)),
                "revisions": len(drafts),
            }
            if drafts:  # a correction keeps the name
                fields |= {"name": drafts[0].record.name, "created": drafts[0].record.created}
            fields["asked"] |= {"key": self.key(planned)}
            fields["fingerprint"] = text_fingerprint(text, fields["kind"])
            draft, report = await check_stored(self.store, self.store.put(text, DraftRecord(**fields)), self.corpus)
            drafts.append(draft)
            to_correct = [finding for finding in report.findings if finding.level != "note"] if report.errors else []
            lines = text.splitlines()
            return [_with_line(str(finding), finding.place, lines) for finding in to_correct]

        await checked_text(author, self.subject(planned, decided), stage, check)
        return drafts[-1]

    @abstractmethod
    def key(self, planned: P) -> str:
        """Return the hash of everything that is asked for a plan, except what exists already."""

    @abstractmethod
    async def decide(self, author: Author) -> Mapping[P, D]:
        """Return what is decided about each missing draft before it is written."""

    @abstractmethod
    async def stage(self, author: Author, planned: P, decided: D) -> Stage[str]:
        """Return the request whose reply is read as the text of the draft."""

    @abstractmethod
    def record_fields(self, planned: P, decided: D, text: str) -> Json:
        """Return the fields of a draft's record that this kind of draft knows: kind, name, what was asked, prompts."""

    @abstractmethod
    def subject(self, planned: P, decided: D) -> str:
        """Return the name of a draft in messages."""

    @property
    def requests(self) -> int:
        """The number of requests for the missing drafts."""
        return len(self.missing)

    def free_id(self, kind: DraftKind, title: str, key: str) -> str:
        """Return an ID for a new case: its title as a plain name, with a part of the key if it is taken.

        A draft of the same key keeps its ID.
        """
        base = slug(title)[:_MAX_ID].strip("-") or "case"
        earlier = self.store.find(kind, base)
        is_free = earlier is None and not self.store.path_of(kind, base).exists()
        if is_free or (earlier is not None and earlier.record.asked.get("key") == key):
            return base
        return f"{base}-{key[:6]}"


class StagedGeneration(Generation[P, R]):
    """Drafts about which a first stage decides, several in one request, so that they differ."""

    first: ClassVar[str]
    batch: ClassVar[int]
    stages: ClassVar[int] = 1
    """Number of further requests for each draft."""

    decision: ClassVar[type[Record]]

    @abstractmethod
    def first_stage(self, planned: Sequence[P], earlier: Sequence[R]) -> Stage[dict[P, R]]:
        """Return the request for the decisions about several drafts; ``earlier`` are those about others."""

    async def decide(self, author: Author) -> dict[P, R]:
        """Return the decision about each missing draft; those of an earlier run are kept."""
        decided = self._stored(author.files)
        for batch in self._batches(decided):
            _, new = await author.ask(self.first_stage(batch, [*decided.values()]))
            for planned, decision in new.items():
                author.files.write(self.first, self.key(planned), decision.model_dump(), author.model.identity)
            decided |= new
        return decided

    @property
    def requests(self) -> int:
        """The number of requests for the missing drafts, and for the decisions that are missing."""
        batches = self._batches(self._stored(StageFiles(self.store.folder)))
        return len(batches) + self.stages * len(self.missing)

    def _stored(self, files: StageFiles) -> dict[P, Any]:
        stored = {planned: files.read_record(self.first, self.key(planned), self.decision) for planned in self.missing}
        return {planned: decision for planned, decision in stored.items() if decision is not None}

    def _batches(self, decided: Mapping[P, R]) -> list[list[P]]:
        """Return the plans without a decision, in groups that share a request."""
        left = [planned for planned in self.missing if planned not in decided]
        return [left[start : start + self.batch] for start in range(0, len(left), self.batch)]


def _with_line(finding: str, place: str, lines: list[str]) -> str:
    """Return a finding with the text of its line: the model sees no line numbers."""
    number = place.removeprefix("line ")
    if place == number or not number.isdigit() or not 0 < int(number) <= len(lines):
        return finding
    return finding.replace(f"{place}: ", f"in the line {lines[int(number) - 1].strip()!r}: ", 1)
