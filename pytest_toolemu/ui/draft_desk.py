"""The drafts that wait for a person, for use by several threads of the web application."""

from __future__ import annotations

import asyncio
import difflib
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pytest_toolemu.authoring.drafts.check_draft import lint_findings
from pytest_toolemu.authoring.drafts.draft_card import DraftCard
from pytest_toolemu.authoring.drafts.draft_records import DraftFinding, DraftKind
from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftStore
from pytest_toolemu.authoring.drafts.review_desk import PARTS, ReviewDesk, read_corpus
from pytest_toolemu.authoring.lint import lint_files
from pytest_toolemu.authoring.lint.rules import LintProblem
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit_files import drafts_move_to
from pytest_toolemu.errors import UsageError

T = TypeVar("T")


@dataclass(frozen=True)
class LiveLint:
    """What lint finds in the text of an editor, by its lines, and how the text differs from the saved one."""

    findings: list[tuple[LintProblem, DraftFinding]]
    diff: list[str]


class DraftDesk:
    """Reads the folder of drafts when it is needed. One thread at a time checks and decides."""

    def __init__(self, folder: Path, suite: Path) -> None:
        self.store = DraftStore(folder)
        self._suite = suite
        self._lock = threading.Lock()
        self._desk: tuple[object, ReviewDesk] | None = None

    def undecided(self) -> tuple[Draft, ...]:
        """Return the drafts that wait for a person; none without a folder of drafts."""
        return self.store.undecided() if self.store.folder.is_dir() else ()

    def find(self, part: str, name: str) -> Draft | None:
        """Return the undecided draft of this name, of ``cases`` or ``toolkits``; None if there is none."""
        kind: DraftKind = "toolkit" if part == "toolkits" else "standard"
        try:
            draft = self.store.find(kind, name)
        except UsageError:  # not a name
            return None
        return draft if draft is not None and not draft.record.is_decided and draft.path.is_file() else None

    def check(self, draft: Draft) -> tuple[Draft, DraftCard]:
        """Check a draft as it is stored."""
        return self._with_desk(lambda desk: asyncio.run(desk.check(draft)))

    def save(self, draft: Draft, text: str, before: str) -> tuple[Draft, str] | None:
        """Replace the text of a draft, and check it; None if the file no longer has the text with hash ``before``.

        Return the draft with its new hash, which nobody else can have changed in between.
        """

        def save_and_check(desk: ReviewDesk) -> tuple[Draft, str] | None:
            if text_hash(draft) != before:
                return None
            desk.edit(draft, text)
            after = text_hash(draft)
            checked, _ = asyncio.run(desk.check(draft))
            return checked, after

        return self._with_desk(save_and_check)

    def reject(self, draft: Draft, reviewer: str, reason: str, seen: str) -> Draft:
        """Move a draft to the rejected ones. Raise UsageError if it no longer has the text with hash ``seen``."""

        def check_and_reject(desk: ReviewDesk) -> Draft:
            _refuse_unseen(draft, seen)
            return desk.reject(draft, reviewer, reason)

        return self._with_desk(check_and_reject)

    def accept(self, draft: Draft, reviewer: str, override: str, seen: str) -> Path:
        """Check a draft once more, and move it into the suite.

        Raise UsageError for errors without ``override``, and if it no longer has the text with hash ``seen``.
        """

        def check_and_accept(desk: ReviewDesk) -> Path:
            _refuse_unseen(draft, seen)
            checked, card = asyncio.run(desk.check(draft))
            return desk.accept(checked, reviewer, card.errors, override)

        return self._with_desk(check_and_accept)

    def lint(self, draft: Draft, text: str) -> LiveLint:
        """Check a text that is not saved by the rules of a dataset, as a file beside its draft."""
        # Below the folder of the drafts, so that a case finds their toolkits.
        with tempfile.TemporaryDirectory(prefix=".editing-", dir=self.store.folder) as folder:
            file = Path(folder) / draft.path.name
            file.write_text(text, encoding="utf-8")
            with drafts_move_to(self._suite, self.store.folder):
                findings = list(lint_findings(asyncio.run(lint_files([file], as_dataset=True)), file))
        saved = draft.path.read_text(encoding="utf-8", errors="replace")
        return LiveLint(findings, list(text_diff(saved, text)))

    def base(self, draft: Draft) -> tuple[Path, list[str]] | None:
        """Return the case of which a draft is a variant, and how it differs from it; None for a new draft."""
        origin = draft.record.origin
        path = self._with_desk(lambda desk: desk.corpus.path_of_case(origin)) if origin else None
        if path is None:
            return None
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in (path, draft.path)]
        return path, list(text_diff(*texts))

    def _with_desk(self, action: Callable[[ReviewDesk], T]) -> T:
        with self._lock:
            state = [_modified(root) for root in (self.store.folder, self._suite)]
            if self._desk is None or self._desk[0] != state:
                desk = ReviewDesk(self.store, read_corpus(self.store, self._suite), self._suite)
                self._desk = (state, desk)
            desk = self._desk[1]
            try:
                with drafts_move_to(self._suite, self.store.folder):
                    return action(desk)
            finally:
                # The desk knows of its own changes.
                self._desk = ([_modified(root) for root in (self.store.folder, self._suite)], desk)


def _refuse_unseen(draft: Draft, seen: str) -> None:
    """Raise UsageError if the reviewer would decide on a text that another person or window has saved meanwhile."""
    if text_hash(draft) != seen:
        raise UsageError("the file was changed by someone else; reload the page, read it, and decide again")


def text_hash(draft: Draft) -> str:
    """Return a hash of the text of a draft."""
    return sha256(draft.path.read_text(encoding="utf-8", errors="replace"))


def text_diff(before: str, after: str) -> Iterator[str]:
    """Yield the lines of a unified diff without its header."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    return (line for number, line in enumerate(lines) if number > 1)


def _modified(root: Path) -> list[tuple[str, int]]:
    """Return when the folders of cases and toolkits were changed; files are replaced, which changes their folder."""
    folders = [folder for part in PARTS if (top := root / part).is_dir() for folder in (top, *_below(top))]
    return [(str(folder), folder.stat().st_mtime_ns) for folder in sorted(folders)]


def _below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_dir() and not path.name.startswith("."))
