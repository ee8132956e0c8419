"""Reads what exists already, so that drafts differ from it: names of toolkits and titles of cases."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.drafts.draft_store import DraftStore
from pytest_toolemu.authoring.find_files import find
from pytest_toolemu.authoring.generation.toolkit_stages import UsedNames
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.toolkit_files import resolve_toolkits, toolkit_folders
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.yaml_document import Document, read_text

# The first key whose value may be long: what is needed comes before it in the documented order.
_BODY: Final = re.compile(r"^(tools|entities|risks|instruction|world|references|checks)\s*:", re.MULTILINE)


def used_names(store: DraftStore) -> UsedNames:
    """Return the toolkits that cases below the folder of drafts can use, and all drafts, also rejected ones."""
    folder = store.folder.resolve() / "cases"
    paths = {path for where in toolkit_folders(folder) for path in where.glob(f"*{TOOLKIT_SUFFIX}")}
    drafts = [draft for draft in store.drafts() if draft.record.is_toolkit]
    heads = {path.name.removesuffix(TOOLKIT_SUFFIX): _head(path) for path in sorted(paths)}
    heads |= {draft.record.name: _head(draft.path) for draft in drafts}
    categories = {str(head["category"]) for head in heads.values() if "category" in head}
    return UsedNames(
        {name: str(head.get("description", "")) for name, head in heads.items()}, tuple(sorted(categories))
    )


def toolkits_by_name(names: tuple[str, ...], drafts: Path) -> dict[str, Toolkit]:
    """Return the toolkits of these names, as cases below the folder of drafts find them.

    Raise UsageError if none is named, or one is unknown or not valid.
    """
    if not names:
        raise UsageError("--toolkits names no toolkit; name at least one, such as --toolkits=BankManager")
    document = Document.parse(f"toolkits: {json.dumps(names)}\n", drafts / "cases" / "new")
    try:
        return {kit.name: kit for kit in resolve_toolkits(names, document)}
    except DocumentError as error:
        raise UsageError("; ".join(f"--toolkits: {message}" for _, _, message in error.problems)) from None


def undecided_cases(store: DraftStore) -> tuple[Path, ...]:
    """Return the files of the drafts of cases that nobody has decided about."""
    return tuple(draft.path for draft in store.undecided() if not draft.record.is_toolkit)


def suite_cases(suite: Path) -> tuple[Path, ...]:
    """Return the files of the cases of a suite: those below ``cases`` in its folder."""
    folder = suite / "cases"
    return find([folder]).cases if folder.is_dir() else ()


def used_titles(store: DraftStore, cases: Iterable[Path]) -> list[str]:
    """Return the titles of these case files and of all drafts, also rejected ones, each once and sorted."""
    drafts = (draft.path for draft in store.drafts() if not draft.record.is_toolkit)
    return sorted(set(_titles([*cases, *drafts])))


def _titles(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        title = _head(path).get("title")
        if isinstance(title, str):
            yield title


def _head(path: Path) -> dict[str, Any]:
    """Return the keys before the first long one. A file that cannot be read gives none; checks report it."""
    try:
        text = read_text(path)
        body = _BODY.search(text)
        value = Document.parse(text[: body.start()] if body else text, path).value
    except DocumentError:
        return {}
    return value if isinstance(value, dict) else {}
