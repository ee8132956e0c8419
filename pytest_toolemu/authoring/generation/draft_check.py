"""Writes a draft into the store, checks it, and says what the model should correct."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pytest_toolemu.authoring.drafts.check_draft import check_stored
from pytest_toolemu.authoring.drafts.draft_corpus import DraftCorpus
from pytest_toolemu.authoring.drafts.draft_records import DraftKind, DraftRecord
from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftStore, text_fingerprint
from pytest_toolemu.authoring.generation.author import Author
from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.errors import InconclusiveError

Json = dict[str, Any]


@dataclass
class DraftWriter:
    """Keeps the latest text of one draft in the store, with its record. ``key`` identifies what was asked."""

    store: DraftStore
    corpus: DraftCorpus
    author: Author
    kind: DraftKind
    name: str
    prompt_hash: str
    key: str
    asked: Json
    stages: tuple[str, ...] = ()
    origin: str | None = None
    draft: Draft | None = field(default=None, init=False)

    async def check(self, text: str) -> list[str]:
        """Write a text, check it, and return the findings for the model; none if there is no error among them."""
        revisions = 0 if self.draft is None else self.draft.record.revisions + 1
        self.draft = self.store.put(text, self._record(text, revisions))
        self.draft, card = await check_stored(self.store, self.draft, self.corpus)
        if not card.errors:
            return []
        lines = text.splitlines()
        return [_with_line(str(finding), finding.place, lines) for finding in card.findings if finding.level != "note"]

    @property
    def written(self) -> Draft:
        """The latest draft. Raise InconclusiveError if the model gave none."""
        if self.draft is None:
            raise InconclusiveError(f"the model returned no draft of {self.name}")
        return self.draft

    def _record(self, text: str, revisions: int) -> DraftRecord:
        identity = self.author.model.identity
        return DraftRecord(
            kind=self.kind,
            name=self.name,
            model=provider_and_name(identity),
            prompt_hash=self.prompt_hash,
            asked={**self.asked, "key": self.key},
            created=datetime.now(UTC) if self.draft is None else self.draft.record.created,
            stages=self.stages,
            origin=self.origin,
            fingerprint=text_fingerprint(text, self.kind),
            revisions=revisions,
        )


def _with_line(finding: str, place: str, lines: list[str]) -> str:
    """Return a finding with the text of its line: the model sees no line numbers."""
    number = place.removeprefix("line ")
    if place == number or not number.isdigit() or not 0 < int(number) <= len(lines):
        return finding
    return finding.replace(f"{place}: ", f"in the line {lines[int(number) - 1].strip()!r}: ", 1)


def drafts_by_key(store: DraftStore) -> dict[str, Draft]:
    """Return the drafts that were checked, by the key of what was asked."""
    drafts = (draft for draft in store.drafts() if draft.record.status != "drafted")
    return {str(draft.record.asked.get("key")): draft for draft in drafts}
