"""A folder of drafts with everything that a person needs to decide about them: checks, edits, and decisions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pytest_toolemu.authoring.drafts.acceptance import accept_draft
from pytest_toolemu.authoring.drafts.check_draft import check_stored
from pytest_toolemu.authoring.drafts.draft_card import DraftCard
from pytest_toolemu.authoring.drafts.draft_corpus import DraftCorpus
from pytest_toolemu.authoring.drafts.draft_records import DraftFinding, ReviewDecision
from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftStore
from pytest_toolemu.core import toolkit
from pytest_toolemu.core.dataset import DRAFT_SUFFIX
from pytest_toolemu.core.toolkit_files import forget_toolkit_folders
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text

PARTS: Final = ("cases", "toolkits")
_MAX_NAME: Final = 100


def open_drafts(folder: Path) -> tuple[DraftStore, tuple[Draft, ...]]:
    """Return the store and its undecided drafts. Raise UsageError if this is not a folder of drafts."""
    if not folder.is_dir():
        raise UsageError(
            f"{folder}: no such folder of drafts; name the folder that 'toolemu generate' wrote, such as drafts"
        )
    if folder.name in PARTS and any(folder.glob(f"*{DRAFT_SUFFIX}")):
        raise UsageError(f"{folder}: is only part of a folder of drafts; name the whole folder, {folder.parent}")
    store = DraftStore(folder)
    if any(folder.iterdir()) and not any(store.drafts()):
        raise UsageError(
            f"{folder}: contains no drafts; name the folder that 'toolemu generate' wrote, or run that command again"
        )
    return store, store.undecided()


def read_corpus(store: DraftStore, suite: Path) -> DraftCorpus:
    """Return what drafts must not repeat: the suite, the shipped dataset, and the other drafts."""
    refuse_other_folder(store, suite)
    folders = [root / part for root in (suite, toolkit.benchmark_folder()) for part in PARTS]
    return DraftCorpus.read(store, [path for path in folders if path.is_dir()])


def refuse_other_folder(store: DraftStore, suite: Path) -> None:
    """Raise UsageError if a folder cannot be that of the suite."""
    if not suite.is_dir():
        raise UsageError(f"--suite {suite}: no such folder; name the folder that has cases/ and toolkits/")
    if suite.resolve() == store.folder.resolve():
        raise UsageError(f"--suite {suite}: is the folder of the drafts; name the one into which accepted files move")


def reviewer_name(text: str) -> str:
    """Return the name of a reviewer without spaces around it. Raise UsageError if it cannot be one."""
    if not text.strip() or not text.isprintable() or len(text) > _MAX_NAME:
        raise UsageError(
            f"--reviewer {text!r}: give your name, with at most {_MAX_NAME} printable characters; it is written to "
            "accepted files"
        )
    return text.strip()


@dataclass
class ReviewDesk:
    """The drafts of a store, and the folder of the suite into which accepted ones move."""

    store: DraftStore
    corpus: DraftCorpus
    suite: Path

    async def check(self, draft: Draft) -> tuple[Draft, DraftCard]:
        """Check a draft as it is now, and store the results in its record."""
        return await check_stored(self.store, draft, self.corpus)

    def edit(self, draft: Draft, text: str) -> None:
        """Replace the text of a draft, atomically."""
        write_json_text(draft.path, text)
        # A case may use the toolkit that has changed.
        forget_toolkit_folders()
        self.corpus.put(draft)

    def reject(self, draft: Draft, reviewer: str, reason: str) -> Draft:
        """Move a draft to the rejected ones, with the reason, and return it."""
        decision = ReviewDecision(reviewer=reviewer, date=datetime.now(UTC), reason=reason)
        moved = self.store.reject(draft, decision)
        self.corpus.remove(draft.path)
        self.corpus.put(moved)
        return moved

    def accept(self, draft: Draft, reviewer: str, errors: tuple[DraftFinding, ...], override: str = "") -> Path:
        """Move a draft into the suite, and return its file.

        ``override`` is the reason to accept a draft with errors. Raise DocumentError or UsageError if the draft cannot
        be accepted.
        """
        path = accept_draft(self.store, draft, self.suite, reviewer=reviewer, errors=errors, override=override)
        self.corpus.move(draft.path, path)
        return path
