"""The drafts that wait for a person: checks, edits, and decisions, for the terminal and the web application."""

from __future__ import annotations

import asyncio
import difflib
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pytest_toolemu.analysis.statistics.intervals import Estimate, share_estimate
from pytest_toolemu.authoring.case_text import lines_of
from pytest_toolemu.authoring.drafts.check_draft import CheckReport, DraftCorpus, check_stored, lint_findings
from pytest_toolemu.authoring.drafts.draft_store import (
    Draft,
    DraftFinding,
    DraftKind,
    DraftRecord,
    DraftStore,
    ReviewDecision,
)
from pytest_toolemu.authoring.lint import lint_files
from pytest_toolemu.authoring.lint.rules import LintProblem
from pytest_toolemu.core import toolkit
from pytest_toolemu.core.case import DRAFT_MARK, Case
from pytest_toolemu.core.case_loading import (
    build_case,
    drafts_move_to,
    forget_toolkit_folders,
    load_toolkit,
)
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import Provenance, Toolkit
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.file_access import write_atomically, write_for_user
from pytest_toolemu.formats.text import counted
from pytest_toolemu.formats.yaml_document import Document, dump

PARTS: Final = ("cases", "toolkits")
_MAX_NAME: Final = 100
_KEY: Final = "provenance"


def open_drafts(folder: Path) -> tuple[DraftStore, tuple[Draft, ...]]:
    """Return the store and its undecided drafts. Raise UsageError if this is not a folder of drafts."""
    store = DraftStore(folder)
    if not folder.is_dir() or (any(folder.iterdir()) and not any(store.drafts())):
        raise UsageError(
            f"{folder}: is not a folder of drafts; name the folder that 'toolemu generate' wrote, such as drafts"
        )
    return store, store.undecided()


def read_corpus(store: DraftStore, suite: Path) -> DraftCorpus:
    """Return what drafts must not repeat: the suite, the shipped dataset, and the other drafts."""
    refuse_other_folder(store, suite)
    folders = [root / part for root in (suite, toolkit.benchmark_folder()) for part in PARTS]
    return DraftCorpus.read(store, [path for path in folders if path.is_dir()])


def refuse_other_folder(store: DraftStore, suite: Path) -> None:
    """Raise UsageError if a folder cannot be that of the suite."""
    if not suite.is_dir() or suite.resolve() == store.folder.resolve():
        raise UsageError(
            f"--suite {suite}: cannot be the folder of the suite; name the folder into whose cases/ and toolkits/ "
            "accepted files move"
        )


def reviewer_name(text: str) -> str:
    """Return the name of a reviewer without spaces around it. Raise UsageError if it cannot be one."""
    if not text.strip() or not text.isprintable() or len(text) > _MAX_NAME:
        raise UsageError(
            f"--reviewer {text!r}: give your name, with at most {_MAX_NAME} printable characters; it is written to "
            "accepted files"
        )
    return text.strip()


class ReviewQueue:
    """The undecided drafts of a folder, and the suite into which accepted ones move.

    The files with which drafts are compared are read when they are needed. One thread at a time checks and decides.
    """

    def __init__(self, folder: Path, suite: Path) -> None:
        self.store = DraftStore(folder)
        self._suite = suite
        self._lock = threading.Lock()
        self._read: tuple[object, DraftCorpus] | None = None

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

    def check(self, draft: Draft) -> tuple[Draft, CheckReport]:
        """Check a draft as it is stored, and store the results in its record."""
        with self._corpus() as corpus:
            return asyncio.run(check_stored(self.store, draft, corpus))

    def save(self, draft: Draft, text: str, before: str) -> tuple[Draft, str] | None:
        """Replace the text of a draft, and check it; None if the file no longer has the text with hash ``before``.

        Return the draft with its new hash, which nobody else can have changed in between.
        """
        with self._corpus() as corpus:
            if text_hash(draft) != before:
                return None
            write_atomically(draft.path, text)
            forget_toolkit_folders()  # a case may use the toolkit that has changed
            after = text_hash(draft)
            checked, _ = asyncio.run(check_stored(self.store, draft, corpus))
            return checked, after

    def reject(self, draft: Draft, reviewer: str, reason: str, seen: str) -> Draft:
        """Move a draft to the rejected ones. Raise UsageError if it no longer has the text with hash ``seen``."""
        with self._corpus() as corpus:
            _refuse_unseen(draft, seen)
            decision = ReviewDecision(reviewer=reviewer, date=datetime.now(UTC), reason=reason)
            moved = self.store.reject(draft, decision)
            corpus.remove(draft.path)
            corpus.put(moved)
            return moved

    def accept(self, draft: Draft, reviewer: str, override: str, seen: str) -> Path:
        """Check a draft once more, write it into ``cases/`` or ``toolkits/`` of the suite, and record the decision.

        Raise UsageError for errors without ``override``, which says why it is accepted anyway, if it no longer has the
        text with hash ``seen``, the file exists, or a toolkit or the base of the case is still a draft. Raise
        DocumentError if the file would not be valid in the suite. Nothing is written then.
        """
        with self._corpus() as corpus:
            _refuse_unseen(draft, seen)
            draft, report = asyncio.run(check_stored(self.store, draft, corpus))
            path = self._accept(draft, report, reviewer, override.strip())
            corpus.move(draft.path, path)
            return path

    def _accept(self, draft: Draft, report: CheckReport, reviewer: str, override: str) -> Path:
        if report.errors and not override:
            raise UsageError(
                f"{draft.path}: the checks report {counted(len(report.errors), 'error')}; correct the draft, or give "
                "a reason to accept it nevertheless"
            )
        target = self._suite / ("toolkits" if draft.record.is_toolkit else "cases") / draft.path.name
        if target.exists():
            raise UsageError(f"{target}: already exists and was not changed; rename the draft, or delete the file")
        provenance = Provenance(
            model=draft.record.model,
            prompt_hash=draft.record.prompt_hash,
            reviewer=reviewer,
            date=datetime.now(UTC).replace(microsecond=0),
            override=override if report.errors else None,
        )
        reviewed = Document.parse(_text(draft.path).removesuffix(DRAFT_MARK), draft.path)
        document = Document.parse(_with_provenance(reviewed, provenance), target)
        forget_toolkit_folders()  # the suite may have got its first toolkit since
        if draft.record.is_toolkit:
            load_toolkit(draft.path)
            document.build(Toolkit)
        else:
            _reject_drafted_base(self.store, build_case(document).case)
        write_for_user(target, document.text, "choose another folder with --suite")
        forget_toolkit_folders()
        file = target.relative_to(self._suite).as_posix()
        reason = provenance.override or ""
        self.store.accept(draft, ReviewDecision(reviewer=reviewer, date=provenance.date, reason=reason, file=file))
        return target

    def lint(self, draft: Draft, text: str) -> tuple[list[tuple[LintProblem, DraftFinding]], list[str]]:
        """Return what lint finds in a text that is not saved, by its lines, and how it differs from the saved one."""
        # Below the folder of the drafts, so that a case finds their toolkits.
        with tempfile.TemporaryDirectory(prefix=".editing-", dir=self.store.folder) as folder:
            file = Path(folder) / draft.path.name
            file.write_text(text, encoding="utf-8")
            with drafts_move_to(self._suite, self.store.folder):
                findings = list(lint_findings(asyncio.run(lint_files([file], as_dataset=True)), file))
        return findings, list(_diff(_text(draft.path), text))

    def base(self, draft: Draft) -> tuple[Path, list[str]] | None:
        """Return the case of which a draft is a variant, and how it differs from it; None for a new draft."""
        if draft.record.origin is None:
            return None
        with self._corpus() as corpus:
            path = corpus.path_of_case(draft.record.origin)
        return None if path is None else (path, list(_diff(_text(path), _text(draft.path).removesuffix(DRAFT_MARK))))

    @contextmanager
    def _corpus(self) -> Iterator[DraftCorpus]:
        """Lend the files with which drafts are compared; they are read again if a folder has changed."""
        with self._lock:
            if self._read is None or self._read[0] != self._modified():
                self._read = self._modified(), read_corpus(self.store, self._suite)
            corpus = self._read[1]
            try:
                with drafts_move_to(self._suite, self.store.folder):
                    yield corpus
            finally:
                self._read = self._modified(), corpus  # which knows of the changes that were made here

    def _modified(self) -> list[tuple[str, int]]:
        """Return when the folders of cases and toolkits changed; files are replaced, which changes their folder."""
        tops = [root / part for root in (self.store.folder, self._suite) for part in PARTS]
        folders = [folder for top in tops if top.is_dir() for folder in (top, *top.rglob("*"))]
        return [(str(folder), folder.stat().st_mtime_ns) for folder in sorted(folders) if folder.is_dir()]


def text_hash(draft: Draft) -> str:
    """Return a hash of the text of a draft."""
    return sha256(_text(draft.path))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _diff(before: str, after: str) -> Iterator[str]:
    """Yield the lines of a unified diff without its header."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    return (line for number, line in enumerate(lines) if number > 1)


def _refuse_unseen(draft: Draft, seen: str) -> None:
    """Raise UsageError if the reviewer would decide on a text that another person or window has saved meanwhile."""
    if text_hash(draft) != seen:
        raise UsageError("the file was changed by someone else; reload the page, read it, and decide again")


def _with_provenance(document: Document, provenance: Provenance) -> str:
    """Return the text of a file with ``provenance`` at its end. Raise DocumentError if that cannot be added."""
    value = provenance.model_dump(mode="json", exclude_none=True)
    text, before = "".join(lines_of(document)) + dump({_KEY: value}), document.value
    try:
        after = Document.parse(text, document.path).value
    except DocumentError:
        after = None
    if not isinstance(before, dict) or _KEY in before or after != {**before, _KEY: value}:
        message = (
            "'provenance' cannot be added at the end of this file; write its top level in block style, one key per "
            "line, and without 'provenance'"
        )
        raise document.error([((), message)])
    return text


def _reject_drafted_base(store: DraftStore, case: Case) -> None:
    """Raise UsageError if a twin or variant is accepted before the draft that it belongs to."""
    for name in filter(None, (case.twin_of, case.variant_of)):
        base = store.find("standard", name)
        if base is not None and base.record.status != "accepted":
            raise UsageError(
                f"{case.id}: its base {name!r} is a draft ({base.record.status}); accept {base.path} first"
            )


@dataclass(frozen=True)
class AcceptanceRow:
    """The drafts of one kind by one model: how many people decided on, and the share of decided ones accepted.

    ``overridden`` counts the accepted ones with errors. ``share`` is None if none is decided; its interval treats a
    case and its variants as one cluster.
    """

    kind: str
    model: str
    drafts: int
    accepted: int
    overridden: int
    rejected: int
    share: Estimate | None


def acceptance(records: Iterable[DraftRecord]) -> tuple[AcceptanceRow, ...]:
    """Return how many drafts people accept, in a row for each kind and model, sorted by both."""
    groups: defaultdict[tuple[str, str], list[DraftRecord]] = defaultdict(list)
    for record in records:
        groups[record.kind, record.model].append(record)
    return tuple(_row(kind, model, group) for (kind, model), group in sorted(groups.items()))


def _row(kind: str, model: str, records: list[DraftRecord]) -> AcceptanceRow:
    statuses = Counter(record.status for record in records)
    clusters: defaultdict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.is_decided:
            clusters[record.origin or record.name].append(float(record.status == "accepted"))
    accepted = [record.decision for record in records if record.status == "accepted"]
    return AcceptanceRow(
        kind=kind,
        model=model,
        drafts=len(records),
        overridden=sum(decision is not None and bool(decision.reason) for decision in accepted),
        share=share_estimate([*clusters.values()]),
        accepted=statuses["accepted"],
        rejected=statuses["rejected"],
    )
