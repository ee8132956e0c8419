"""Moves a draft that a person accepts into the suite, with its provenance in the file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pytest_toolemu.authoring.case_text import lines_of
from pytest_toolemu.authoring.drafts.draft_records import DraftFinding, ReviewDecision
from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftStore
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_loading import build_case
from pytest_toolemu.core.toolkit import NAME, Provenance, Toolkit
from pytest_toolemu.core.toolkit_files import find_toolkit, forget_toolkit_folders, load_toolkit
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.yaml_document import KEY, Document, dump

_KEY: Final = "provenance"


def accept_draft(
    store: DraftStore,
    draft: Draft,
    suite: Path,
    *,
    reviewer: str,
    errors: Sequence[DraftFinding] = (),
    override: str = "",
) -> Path:
    """Write a draft into ``cases/`` or ``toolkits/`` of the suite, record the decision, and return the new file.

    ``errors`` are what the checks report now; with any, ``override`` says why the draft is accepted anyway.
    Raise UsageError if that reason is missing, the file exists, or a toolkit of the case is still a draft, and
    DocumentError if the file would not be valid in the suite. Nothing is written then.
    """
    if errors and not override.strip():
        raise UsageError(
            f"{draft.path}: the checks report {counted(len(errors), 'error')}; correct the draft, or give a reason to "
            "accept it nevertheless"
        )
    now = datetime.now(UTC).replace(microsecond=0)
    target = suite / ("toolkits" if draft.record.is_toolkit else "cases") / draft.path.name
    if target.exists():
        raise UsageError(f"{target}: already exists and was not changed; rename the draft, or delete the file")
    provenance = Provenance(
        model=draft.record.model,
        prompt_hash=draft.record.prompt_hash,
        reviewer=reviewer,
        date=now,
        override=override.strip() or None if errors else None,
    )
    document = Document.parse(text_with_provenance(Document.read(draft.path), provenance), target)
    forget_toolkit_folders()  # the suite may have got its first toolkit since
    if draft.record.is_toolkit:
        load_toolkit(draft.path)
        document.build(Toolkit)
    else:
        _reject_drafted_toolkits(store, document)
        _reject_drafted_base(store, build_case(document).case)
    _write(target, document.text)
    forget_toolkit_folders()
    decision = ReviewDecision(
        reviewer=reviewer, date=now, reason=provenance.override or "", file=target.relative_to(suite).as_posix()
    )
    store.accept(draft, decision)
    return target


def text_with_provenance(document: Document, provenance: Provenance) -> str:
    """Return the text of a file with ``provenance`` at its end. Raise DocumentError if that cannot be added."""
    value = provenance.model_dump(mode="json", exclude_none=True)
    if not isinstance(document.value, dict) or _KEY in document.value:
        message = "only the command that accepts a draft writes 'provenance'; remove it"
        raise document.error([((_KEY, KEY), message)])
    text = "".join(lines_of(document)) + dump({_KEY: value})
    try:
        is_added = Document.parse(text, document.path).value == {**document.value, _KEY: value}
    except DocumentError:
        is_added = False
    if not is_added:
        message = "keys cannot be added at the end of this file; write its top level in block style, one key per line"
        raise document.error([((), message)])
    return text


def _reject_drafted_toolkits(store: DraftStore, case: Document) -> None:
    """Raise UsageError if the suite lacks a toolkit of the case, and a draft has its name."""
    folder = case.path.resolve().parent
    names = case.value.get("toolkits") if isinstance(case.value, dict) else None
    for name in names if isinstance(names, list) else ():
        if not isinstance(name, str) or not NAME.fullmatch(name) or find_toolkit(name, folder) is not None:
            continue
        drafted = store.find("toolkit", name)
        if drafted is not None and not drafted.record.is_decided:
            raise UsageError(f"{case.path.name}: its toolkit {name!r} is still a draft; accept {drafted.path} first")


def _reject_drafted_base(store: DraftStore, case: Case) -> None:
    """Raise UsageError if a twin or variant is accepted before the draft that it belongs to."""
    for key, name in (("twin_of", case.twin_of), ("variant_of", case.variant_of)):
        base = store.find("standard", name) if name else None
        if base is not None and base.record.status != "accepted":
            raise UsageError(
                f"{case.id}: its base {name!r} is a draft ({base.record.status}); accept {base.path} first, or remove "
                f"{key!r}"
            )


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json_text(path, text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}; choose another folder with --suite") from None
