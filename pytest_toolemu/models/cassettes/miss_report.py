"""Why a request is not among the recordings: the nearest one, and the first thing in which it differs."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, Final

from pytest_toolemu.formats.yaml_document import place, show
from pytest_toolemu.models.cassettes.request import CassetteEntry, CassetteRequest

Place = tuple[str, int]
"""File name and number of an exchange."""

_SHOWN: Final = 70
_BEFORE: Final = 25
_REMEDY: Final = "record what is missing with --toolemu-record=new, or everything again with --toolemu-record=all"


def explain_miss(asked: CassetteRequest, own: str, entries: Sequence[tuple[Place, CassetteEntry]]) -> str:
    """A sentence for somebody whose replay has no reply to this request; ``own`` is the item's recording."""
    ours = [(where, entry) for where, entry in entries if entry.request.role == asked.role]
    head = f"no recording answers this request of the {asked.role}"
    if not ours:
        return f"{head}: {own} holds none of its requests; {_REMEDY}"
    (file, number), nearest = max(ours, key=lambda found: _nearness(asked, found[1].request))
    return f"{head}: {_first_difference(nearest.request, asked)} (nearest: exchange {number} in {file}); {_REMEDY}"


def _nearness(asked: CassetteRequest, recorded: CassetteRequest) -> tuple[int, ...]:
    """The more messages are the same from the start the nearer, then the more of what follows; then all the rest."""
    common = _common(recorded.messages, asked.messages)
    texts = [str(turns[common]) if common < len(turns) else "" for turns in (recorded.messages, asked.messages)]
    rest = sum(getattr(asked, name) == getattr(recorded, name) for name in ("asked", "tools", "schema", "seed"))
    return (common, _shared(*texts), rest, -abs(len(asked.messages) - len(recorded.messages)))


def _first_difference(recorded: CassetteRequest, asked: CassetteRequest) -> str:
    """What differs, what explains the most first: a seed or a prompt that changed shows in later texts as well."""
    for name in ("asked", "trial", "seed"):
        before, now = getattr(recorded, name), getattr(asked, name)
        if before != now:
            return _difference(before, now, ("the model" if name == "asked" else f"the {name}",))
    common = _common(recorded.messages, asked.messages)
    turns = recorded.messages[common : common + 1], asked.messages[common : common + 1]
    if not any(turn[0]["role"] == "system" for turn in turns if turn):
        for name in ("tools", "schema"):
            before, now = getattr(recorded, name), getattr(asked, name)
            if before != now:
                return _difference(before, now, (name,))
    counts = f"{len(asked.messages)} messages are sent, {len(recorded.messages)} were recorded"
    if common == len(asked.messages) == len(recorded.messages):
        return "it is recorded, but not so often as it is asked for"
    if common == len(recorded.messages):
        return f"{counts}; the first new one is {_quoted(asked.messages[common])}"
    if common == len(asked.messages):
        return f"{counts}; the first left out is {_quoted(recorded.messages[common])}"
    before, now = recorded.messages[common], asked.messages[common]
    return _difference(before, now, (f"message {common + 1} ({now['role']})",))


def _difference(before: Any, now: Any, loc: tuple[str | int, ...]) -> str:
    """The first place at which two JSON values differ, with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            if key not in before or key not in now:
                what = "is new" if key in now else "is gone"
                return f"{place((*loc, key))} {what}: {show((now if key in now else before)[key], _SHOWN)}"
            if before[key] != now[key]:
                # A message is its content, as far as a reader is concerned.
                return _difference(before[key], now[key], loc if key == "content" else (*loc, key))
    if isinstance(before, list | tuple) and isinstance(now, list | tuple):
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
    where = f"{place(loc)}, line {line}," if "\n" in before + now else place(loc)
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
