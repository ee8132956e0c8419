"""Notes on what an import left out, changed, or filled in, counted by kind."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

Notes = dict[str, list[str]]
"""The locations of each kind of change."""

_SHOWN: Final = 3


def add_note(notes: Notes, kind: str, location: str) -> None:
    """Add the location of a change."""
    notes.setdefault(kind, []).append(location)


def note_unread(notes: Notes, kind: str, original: Mapping[str, Any], members: Container[str], location: str) -> None:
    """Add a note for every member that the importer does not read; ``kind`` names the containing object."""
    article = "an" if kind[0] in "aeiou" else "a"
    for name in original:
        if name not in members:
            add_note(notes, f"{name!r} of {article} {kind} is left out", location)


def note_lines(notes: Notes, *, details: bool = False) -> Iterator[str]:
    """Yield one line per kind of note, with its count and some of its locations, or all of them with ``details``."""
    for kind, locations in notes.items():
        listed = locations if details else locations[:_SHOWN]
        more = f" and {len(locations) - len(listed)} more" if len(listed) < len(locations) else ""
        yield f"note: {kind}: {len(locations)} ({', '.join(listed)}{more})"


def texts(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value, without the names of members."""
    stack = [value]
    while stack:
        match stack.pop():
            case str(text):
                yield text
            case list(members):
                stack += reversed(members)
            case dict(members):
                stack += reversed(members.values())
