"""The card of a draft: the results of all automatic checks, for a person and for the model that wrote it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pytest_toolemu.authoring.drafts.card_results import CardResults
from pytest_toolemu.authoring.drafts.draft_records import DraftFinding, FindingLevel
from pytest_toolemu.authoring.mutants import Mutant


@dataclass(frozen=True)
class DraftCard:
    """The results of the checks on a draft. ``mutants`` are all of them; the results have their numbers."""

    path: Path
    findings: tuple[DraftFinding, ...]
    results: CardResults = field(default_factory=CardResults)
    mutants: tuple[Mutant, ...] = ()

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
