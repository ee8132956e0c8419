"""A folder of drafts: ``cases/``, ``toolkits/``, and a record next to each file.

    drafts/cases/ID.toolemu.yaml            drafts/cases/ID.draft.json
    drafts/toolkits/NAME.toolkit.yaml       drafts/toolkits/NAME.draft.json
    drafts/rejected/cases/ID.toolemu.yaml   drafts/rejected/cases/ID.draft.json

An accepted draft moves into the suite; its record stays. A rejected one is kept, so that it is not drafted again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.drafts.draft_records import DraftKind, DraftRecord, ReviewDecision
from pytest_toolemu.authoring.drafts.fingerprint import fingerprint
from pytest_toolemu.core.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.core.dataset import DRAFT_SUFFIX
from pytest_toolemu.core.toolkit import NAME
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit_files import forget_toolkit_folders
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.files.stored_json import read_record
from pytest_toolemu.formats.identifiers import case_id_problem
from pytest_toolemu.formats.yaml_document import Document, show

_REJECTED: Final = "rejected"


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
        if kind == "toolkit":
            if not NAME.fullmatch(name):
                rule = "use letters and digits, begin with a letter, and use at most 40 characters"
                raise UsageError(f"{show(name)} cannot be the name of a toolkit; {rule}")
        elif problem := case_id_problem(name):
            raise UsageError(f"{show(name)} cannot be the ID of a case: {problem}")
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
        self._write(draft.path, text)
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

        Raise UsageError if the file of one is missing.
        """
        drafts = tuple(draft for draft in self.drafts() if not draft.record.is_decided)
        if missing := next((draft for draft in drafts if not draft.path.is_file()), None):
            raise UsageError(
                f"{missing.path}: is missing, although its record exists; restore the file, or delete "
                f"{missing.record_path}"
            )
        return tuple(sorted(drafts, key=lambda draft: draft.record.kind not in ("toolkit", "red-team", "standard")))

    def drafts(self) -> Iterator[Draft]:
        """Yield all drafts: toolkits before the cases that may use them, then rejected ones, each sorted by name.

        Raise UsageError for a record that cannot be read.
        """
        for folder in (self.folder, self.folder / _REJECTED):
            for part in ("toolkits", "cases"):
                for path in sorted((folder / part).glob(f"*{DRAFT_SUFFIX}")):
                    yield self._read(path)

    def rejected(self) -> tuple[Draft, ...]:
        """Return the rejected drafts; prompts name them, so that they are not drafted again."""
        return tuple(draft for draft in self.drafts() if draft.record.status == "rejected")

    def rejected_before(self, text: str, kind: DraftKind) -> Draft | None:
        """Return the rejected draft with the same fingerprint as this text; None if there is none."""
        own = text_fingerprint(text, kind)
        return next((draft for draft in self.rejected() if draft.record.fingerprint == own), None)

    def _read(self, path: Path) -> Draft:
        record = read_record(
            path, DraftRecord, expected="the record of a draft", remedy="restore it, or delete it with its draft"
        )
        rejected = record.status == "rejected"
        expected = self.path_of(record.kind, record.name, rejected=rejected)
        if expected.parent.name != path.parent.name or path.name != record.name + DRAFT_SUFFIX:
            raise UsageError(
                f"{path}: is the record of {record.kind} {record.name!r}, which belongs next to {expected}; move it "
                "back"
            )
        return Draft(path.with_name(expected.name), record)

    def _write(self, path: Path, text: str) -> None:
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
                forget_toolkit_folders()  # it may be a new folder of toolkits
            write_json_text(path, text)
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be written: {error.strerror}; free disk space, or choose another folder"
            ) from None


def text_fingerprint(text: str, kind: DraftKind) -> str:
    """Return the fingerprint of a draft's text. If the text is not a YAML mapping, that of the text itself."""
    try:
        content = Document.parse(text, Path("draft")).value
    except DocumentError:
        content = None
    return fingerprint(content if isinstance(content, dict) else {"": text}, is_toolkit=kind == "toolkit")
