"""Writes a draft into the store, checks it, and says what the model should correct."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_toolemu.authoring.drafts.draft_records import DraftFinding, DraftKind, DraftRecord
from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftStore, text_fingerprint
from pytest_toolemu.authoring.generation.author import Author
from pytest_toolemu.authoring.lint import lint_paths
from pytest_toolemu.core.run import sha256
from pytest_toolemu.errors import InconclusiveError

Json = dict[str, Any]


@dataclass
class DraftWriter:
    """Keeps the latest text of one draft in the store, with its record. ``key`` identifies what was asked."""

    store: DraftStore
    kind: DraftKind
    name: str
    author: Author
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
        async with self.author.checking:
            # Checks run event loops of their own.
            findings = await asyncio.to_thread(self._findings, self.draft.path, text)
        failed = any(finding.level == "error" for finding in findings)
        self.draft = self.store.update(
            self.draft,
            status="needs_work" if failed else "ready",
            checked=sha256(text),
            findings=findings,
        )
        return [str(finding) for finding in findings if finding.level != "note"] if failed else []

    @property
    def written(self) -> Draft:
        """The latest draft. Raise InconclusiveError if the model gave none."""
        if self.draft is None:
            raise InconclusiveError(f"the model gave no draft of {self.name}")
        return self.draft

    def _findings(self, path: Path, text: str) -> tuple[DraftFinding, ...]:
        problems = lint_paths([path]).problems
        findings = [
            DraftFinding(
                source="lint",
                rule=problem.rule,
                level=problem.level,
                place=f"line {problem.line}",
                message=problem.message,
            )
            for problem in problems
        ]
        rejected = self.store.rejected_before(text, self.kind)
        if rejected is not None and rejected.record.decision is not None:
            message = (
                f"a person rejected the same draft before: {rejected.record.decision.reason}; write a different one"
            )
            findings.append(DraftFinding(source="duplicates", rule="rejected", level="error", message=message))
        return tuple(findings)

    def _record(self, text: str, revisions: int) -> DraftRecord:
        return DraftRecord(
            kind=self.kind,
            name=self.name,
            model=f"{self.author.model.identity.get('provider')}:{self.author.model.identity.get('name')}",
            prompt_hash=self.prompt_hash,
            asked={**self.asked, "key": self.key},
            created=datetime.now(UTC),
            stages=self.stages,
            origin=self.origin,
            fingerprint=text_fingerprint(text, self.kind),
            revisions=revisions,
        )


def drafts_by_key(store: DraftStore) -> dict[str, Draft]:
    """Return the drafts that were checked, by the key of what was asked."""
    drafts = (draft for draft in store.drafts() if draft.record.status != "drafted")
    return {str(draft.record.asked.get("key")): draft for draft in drafts}
