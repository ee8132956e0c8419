"""Compares a draft with everything that it must not repeat: the suite, the shipped dataset, and other drafts.

The measure is the Jaccard index of four-letter pieces for texts, and of the texts in the prepared world: a draft that
tells an old situation in new words still has its people, numbers, and messages. The thresholds separate the shipped
cases: among 44,000 pairs of unrelated cases no title is above 0.47, no instruction above 0.22, and no world above 0.17.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftFinding, DraftStore
from pytest_toolemu.authoring.find_files import find
from pytest_toolemu.authoring.lint.dataset_rules import jaccard, near_duplicates, pieces_of
from pytest_toolemu.core.case_loading import case_id
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.toolkit_files import resolve_toolkits, toolkit_folders
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.yaml_document import Document, read_text, show

THRESHOLDS: Final = {"title": 0.5, "instruction": 0.35, "world": 0.5, "tools": 0.5}
"""The similarity, from 0 to 1, from which two parts count as nearly the same."""

# The first key whose value may be long: the title of a case and the description of a toolkit come before it.
_BODY: Final = re.compile(r"^(tools|entities|risks|instruction|world|references|checks)\s*:", re.MULTILINE)
# The similarity from which two descriptions mean the same toolkit.
_ALIKE: Final = 0.6

_LEAST_TEXTS: Final = 5
"""Worlds with fewer texts are not compared: two of them may be equal by chance."""


@dataclass(frozen=True)
class ComparedFile:
    """What is compared of a case or toolkit: the pieces of each of its parts.

    ``related`` are the IDs of cases that it may resemble: of which it is a twin or a variant. ``drafted`` orders drafts
    by age; it is empty for files of a suite. ``rejected`` says why a person rejected the draft.
    """

    path: Path
    name: str
    is_toolkit: bool
    parts: dict[str, frozenset[str]]
    related: frozenset[str] = frozenset()
    drafted: str = ""
    rejected: str | None = None

    def may_resemble(self, other: ComparedFile) -> bool:
        """Return whether one is a twin or variant of the other, or both are of the same case."""
        return self.name in other.related or other.name in self.related or not self.related.isdisjoint(other.related)


class DraftCorpus:
    """The files that a draft is compared with. Drafts that are added later are compared with those added before."""

    def __init__(self, files: Iterable[ComparedFile] = ()) -> None:
        self._files = {file.path.resolve(): file for file in files}

    @classmethod
    def read(cls, store: DraftStore, folders: Iterable[Path]) -> DraftCorpus:
        """Return the corpus of these folders, which are searched for cases and toolkits, and of all drafts in a store.

        Files that are not valid YAML are left out; lint reports them. Raise UsageError for a folder that does not
        exist.
        """
        found = find(folders)
        own = store.folder.resolve()
        paths = [path for path in (*found.toolkits, *found.cases) if own not in path.resolve().parents]
        corpus = cls(filter(None, map(_compared, paths)))
        for draft in store.drafts():
            corpus.put(draft)
        return corpus

    def put(self, draft: Draft) -> None:
        """Add a draft, or replace its earlier text. An accepted draft is part of the suite."""
        self.remove(draft.path)
        if draft.record.status != "accepted" and (file := _compared(draft.path, draft)) is not None:
            self._files[draft.path.resolve()] = file

    def move(self, draft: Path, file: Path) -> None:
        """Replace an accepted draft by its file in the suite."""
        self.remove(draft)
        if (compared := _compared(file)) is not None:
            self._files[file.resolve()] = compared

    def remove(self, draft: Path) -> None:
        """Remove a draft that has left its place."""
        self._files.pop(draft.resolve(), None)

    def path_of_case(self, name: str) -> Path | None:
        """Return the file of the case with this ID; None if there is none."""
        paths = (file.path for file in self._files.values() if not file.is_toolkit and file.name == name)
        return next(paths, None)

    def findings(self, path: Path) -> Iterator[DraftFinding]:
        """Yield the name that is taken, and the most similar file for each part that is nearly the same."""
        own = self._files.get(path.resolve()) or _compared(path)
        if own is None:
            return
        others = [file for file in self._files.values() if file.is_toolkit == own.is_toolkit and _counts(file, own)]
        for file in others:
            if file.name == own.name and file.rejected is None:
                message = f"{file.path} has the same name, {own.name!r}; choose another name"
                yield DraftFinding(source="duplicates", rule="name-taken", level="error", message=message)
        unrelated = [file for file in others if not own.may_resemble(file)]
        for part, least in THRESHOLDS.items():
            similar = [(_similarity(own, file, part), file) for file in unrelated]
            similarity, nearest = max(similar, key=lambda pair: pair[0], default=(0.0, own))
            if similarity >= least:
                yield _near_duplicate(part, similarity, nearest)


def _counts(file: ComparedFile, own: ComparedFile) -> bool:
    """Return whether a file has precedence: of two similar drafts, only the later one is reported."""
    if file.path.resolve() == own.path.resolve():
        return False
    return file.rejected is not None or (file.drafted, file.name) < (own.drafted or "\uffff", own.name)


def _near_duplicate(part: str, similarity: float, nearest: ComparedFile) -> DraftFinding:
    rejected = "" if nearest.rejected is None else f", which a reviewer rejected: {show(nearest.rejected)}"
    message = (
        f"{similarity:.0%} identical to {nearest.path}{rejected}; write about a different situation, not the same one "
        "in other words"
    )
    rule = "near-duplicate" if nearest.rejected is None else "rejected"
    return DraftFinding(source="duplicates", rule=rule, level="error", place=part, message=message)


def _similarity(one: ComparedFile, other: ComparedFile, part: str) -> float:
    own, others = one.parts.get(part), other.parts.get(part)
    return jaccard(own, others) if own and others else 0.0


def _compared(path: Path, draft: Draft | None = None) -> ComparedFile | None:
    try:
        content = Document.read(path).value
    except DocumentError:
        return None
    if not isinstance(content, dict):
        return None
    is_toolkit = path.name.endswith(TOOLKIT_SUFFIX)
    record = draft.record if draft else None
    related = {content.get("twin_of"), content.get("variant_of"), record.origin if record else None}
    return ComparedFile(
        path=path,
        name=path.name.removesuffix(TOOLKIT_SUFFIX) if is_toolkit else case_id(path),
        is_toolkit=is_toolkit,
        parts=_parts_of_toolkit(content) if is_toolkit else parts_of_case(content),
        related=frozenset(name for name in related if isinstance(name, str)),
        drafted=record.created.isoformat() if record else "",
        rejected=record.decision.reason if record and record.status == "rejected" and record.decision else None,
    )


def parts_of_case(content: dict[str, Any]) -> dict[str, frozenset[str]]:
    """Return the parts of a case that are compared, given the parsed content of its file."""
    texts = {part: content.get(part) for part in ("title", "instruction")}
    parts = {part: pieces_of(text) for part, text in texts.items() if isinstance(text, str) and text}
    results = [pin.get("returns") for pin in _mappings(content.get("pins"))]
    world = frozenset(_texts([content.get("world"), results]))
    return parts | ({"world": world} if len(world) >= _LEAST_TEXTS else {})


def _parts_of_toolkit(content: dict[str, Any]) -> dict[str, frozenset[str]]:
    descriptions = [tool.get("description") for tool in _mappings(content.get("tools"))]
    return {"tools": pieces_of(" ".join(_texts([content.get("description"), descriptions])))}


def _mappings(value: Any) -> list[dict[str, Any]]:
    """Return the mappings in a list; nothing if the value is not a list."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


@dataclass(frozen=True)
class UsedNames:
    """The names, descriptions, and categories of toolkits that exist, which proposals must not resemble."""

    descriptions: dict[str, str]
    categories: tuple[str, ...] = ()

    def problem(self, name: str, description: str) -> str | None:
        """Return why a proposed toolkit is not new."""
        folded = name.casefold()
        for used in self.descriptions:
            other = used.casefold()
            if folded in other or other in folded:
                return f"{show(name)} contains, or is part of, the used name {show(used)}; propose another one"
        texts = [*self.descriptions.values(), description]
        if any(later == len(texts) - 1 for later, _, _ in near_duplicates(texts, _ALIKE)):
            return f"the description of {show(name)} is nearly that of another toolkit; propose another one"
        return None


def used_names(store: DraftStore) -> UsedNames:
    """Return the toolkits that cases below the folder of drafts can use, and all drafts, also rejected ones."""
    folder = store.folder.resolve() / "cases"
    paths = {path for where in toolkit_folders(folder) for path in where.glob(f"*{TOOLKIT_SUFFIX}")}
    drafts = [draft for draft in store.drafts() if draft.record.is_toolkit]
    heads = {path.name.removesuffix(TOOLKIT_SUFFIX): _head(path) for path in sorted(paths)}
    heads |= {draft.record.name: _head(draft.path) for draft in drafts}
    categories = sorted({str(head["category"]) for head in heads.values() if "category" in head})
    return UsedNames({name: str(head.get("description", "")) for name, head in heads.items()}, tuple(categories))


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


def suite_cases(suite: Path) -> tuple[Path, ...]:
    """Return the files of the cases of a suite: those below ``cases`` in its folder."""
    folder = suite / "cases"
    return find([folder]).cases if folder.is_dir() else ()


def used_titles(store: DraftStore, cases: Iterable[Path]) -> list[str]:
    """Return the titles of these case files and of all drafts, also rejected ones, each once and sorted."""
    drafts = (draft.path for draft in store.drafts() if not draft.record.is_toolkit)
    titles = (_head(path).get("title") for path in (*cases, *drafts))
    return sorted({title for title in titles if isinstance(title, str)})


def text_of(path: Path, key: str) -> str:
    """Return the text of a top-level key of a file; empty if there is none."""
    try:
        value = Document.read(path).value
    except DocumentError:
        return ""
    text = value.get(key) if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


def _head(path: Path) -> dict[str, Any]:
    """Return the keys before the first long one. A file that cannot be read gives none; checks report it."""
    try:
        text = read_text(path)
        body = _BODY.search(text)
        value = Document.parse(text[: body.start()] if body else text, path).value
    except DocumentError:
        return {}
    return value if isinstance(value, dict) else {}
