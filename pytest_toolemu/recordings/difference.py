"""Why a request is not among the recordings: the nearest one, and the first thing in which it differs."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, Final

from pytest_toolemu.documents import place, show
from pytest_toolemu.recordings.request import Entry, Request

Place = tuple[str, int]
"""File name and number of an exchange."""

_SHOWN: Final = 70
_BEFORE: Final = 25
_REMEDY: Final = "record what is missing with --toolemu-record=new, or everything again with --toolemu-record=all"


def explain_miss(asked: Request, file: str, entries: Sequence[tuple[Place, Entry]]) -> str:
    """A sentence or two for somebody whose replay has no reply to this request; ``file`` is the item's own."""
    ours = [(where, entry) for where, entry in entries if entry.request.role == asked.role]
    head = f"no recording answers this request of the {asked.role}"
    if not ours:
        held = f"only {len(entries)} of other roles" if entries else "none"
        return f"{head}: of its requests there are {held} in {file}; {_REMEDY}"
    (name, number), nearest = max(ours, key=lambda found: _nearness(asked, found[1].request))
    return f"{head}; the nearest is number {number} in {name}: {_first_difference(nearest.request, asked)}; {_REMEDY}"


def _nearness(asked: Request, recorded: Request) -> tuple[int, ...]:
    """The more messages are the same from the start the nearer, then the more of what follows; then all the rest."""
    common = _common(recorded.messages, asked.messages)
    texts = [str(turns[common]) if common < len(turns) else "" for turns in (recorded.messages, asked.messages)]
    rest = sum(getattr(asked, name) == getattr(recorded, name) for name in ("asked", "tools", "schema", "seed"))
    return (common, _shared(*texts), rest, -abs(len(asked.messages) - len(recorded.messages)))


def _first_difference(recorded: Request, asked: Request) -> str:
    """What differs, what explains the most first: a model or seed that changed shows in the texts as well."""
    for name, before, now in (
        ("model", recorded.asked, asked.asked),
        ("seed", recorded.seed, asked.seed),
        ("trial", recorded.trial, asked.trial),
        ("tools", list(recorded.tools), list(asked.tools)),
        ("schema", recorded.schema, asked.schema),
    ):
        if before != now:
            return _difference(before, now, (name,))
    common = _common(recorded.messages, asked.messages)
    counts = f"{len(recorded.messages)} messages were recorded, {len(asked.messages)} are sent"
    if common == len(asked.messages) == len(recorded.messages):
        return "it is the same, but was not asked for so often"
    if common == len(recorded.messages):
        return f"{counts}; the first new one is {_quoted(asked.messages[common])}"
    if common == len(asked.messages):
        return f"{counts}; the first left out is {_quoted(recorded.messages[common])}"
    before, now = recorded.messages[common], asked.messages[common]
    return f"message {common + 1} ({now['role']}): {_difference(before, now, ())}"


def _difference(before: Any, now: Any, loc: tuple[str | int, ...]) -> str:
    """The first place at which two JSON values differ, with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            if key not in before or key not in now:
                what = "is new" if key in now else "is gone"
                return f"{place((*loc, key))} {what}: {show((now if key in now else before)[key], _SHOWN)}"
            if before[key] != now[key]:
                return _difference(before[key], now[key], (*loc, key))
    if isinstance(before, list) and isinstance(now, list):
        for index, (old, new) in enumerate(zip(before, now, strict=False)):
            if old != new:
                return _difference(old, new, (*loc, index))
        return f"{place(loc)} has {len(now)} members, recorded were {len(before)}"
    if isinstance(before, str) and isinstance(now, str):
        return _text_difference(before, now, loc)
    return f"{place(loc)} is {show(now, _SHOWN)}, recorded was {show(before, _SHOWN)}"


def _text_difference(before: str, now: str, loc: tuple[str | int, ...]) -> str:
    at = _shared(before, now)
    line = now.count("\n", 0, at) + 1
    where = f"line {line} of {place(loc)}" if "\n" in before + now else place(loc)
    return f"{where} is {_around(now, at)}, recorded was {_around(before, at)}"


def _around(text: str, at: int) -> str:
    """The line at which a text differs, cut to what is around the place."""
    start = max(text.rfind("\n", 0, at) + 1, at - _BEFORE)
    end = text.find("\n", at)
    shown = text[start : end if end >= 0 else len(text)]
    cut = "…" if start > text.rfind("\n", 0, at) + 1 else ""
    return show(cut + shown, _SHOWN)


def _quoted(turn: dict[str, Any]) -> str:
    return f"of role {turn['role']}: {show(turn.get('content') or turn.get('calls', ''), _SHOWN)}"


def _common(before: Sequence[Any], now: Sequence[Any]) -> int:
    pairs = enumerate(zip(before, now, strict=False))
    return next((index for index, (old, new) in pairs if old != new), min(len(before), len(now)))


def _shared(before: str, now: str) -> int:
    """How many characters two texts have in common at their start."""
    longest = min(len(before), len(now))
    return bisect.bisect_left(range(longest), True, key=lambda end: before[: end + 1] != now[: end + 1])
