"""Completes files: what all kinds of files share, such as the proof that nothing of the author's is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pytest_toolemu.authoring.generation.author import Stage
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import Document, Loc, format_location, show
from pytest_toolemu.formats.yaml_edits import YamlText

Json = dict[str, Any]

RULES: Final = "authoring/completion"
REQUEST: Final = "authoring/completion_request"
GAP: Final = "TODO:"
"""What ``toolemu new`` writes where the author should write something."""


class Completion(Protocol):
    """What is missing in a file, and how a reply fills it."""

    @property
    def document(self) -> Document:
        """The file."""
        ...

    @property
    def missing_fields(self) -> tuple[str, ...]:
        """The missing parts by their names in the file; none if the file is complete."""
        ...

    def stage(self) -> Stage:
        """Return the request for the missing parts."""
        ...

    def text(self, reply: Json) -> str:
        """Return the completed text of the file. Raise ValueError if the reply cannot be used."""
        ...


@dataclass(frozen=True)
class Change:
    """A value that a reply gives, at its location."""

    loc: Loc
    value: Any


def is_missing(value: Any) -> bool:
    """Return whether a value says nothing: it is absent, empty, or a text that the author is to write."""
    return value in (None, "", [], {}) or (isinstance(value, str) and GAP in value)


def has_gap(value: Any) -> bool:
    """Return whether a value, or a part of it, is a text that the author is to write."""
    if isinstance(value, str):
        return GAP in value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(has_gap, parts))


def own_items(value: Any) -> list[Any]:
    """Return the items of a list that the author wrote."""
    return [item for item in value if not has_gap(item)] if isinstance(value, list) else []


def refuse_loss(before: Document, after: str, replaced: frozenset[Loc] = frozenset()) -> None:
    """Raise UsageError if a completed text lacks a value or a comment of the author; the file is then left alone.

    ``replaced`` are the locations of guesses that a completion may replace.
    """
    value = Document.parse(after, before.path).value
    losses = [f"the value at {format_location(loc) or 'the top'}" for loc in _lost(before.value, value, (), replaced)]
    comments = Counter(YamlText(before.text).comments) - Counter(YamlText(after).comments)
    losses += [f"the comment {show(comment)}" for comment in comments]
    if losses:
        raise UsageError(
            f"{before.path}: completing the file would lose {losses[0]}, so it was not changed; write the adjacent "
            "part yourself"
        )


def _lost(before: Any, after: Any, loc: Loc, replaced: frozenset[Loc]) -> Iterator[Loc]:
    if is_missing(before) or loc in replaced:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key, part in before.items():
            yield from _lost(part, after.get(key), (*loc, key), replaced)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (part, other) in enumerate(zip(before, after, strict=True)):
            yield from _lost(part, other, (*loc, index), replaced)
    elif isinstance(before, list) and isinstance(after, list):
        yield from ((*loc, index) for index, part in enumerate(before) if not has_gap(part) and part not in after)
    elif before != after:
        yield loc
