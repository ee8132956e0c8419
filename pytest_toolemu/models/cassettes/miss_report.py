"""Explain why no cassette has a request: its nearest recorded request, and their first difference."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, Final

from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.yaml_document import format_location, show
from pytest_toolemu.models.cassettes.request import CassetteEntry, CassetteRequest

CallPosition = tuple[str, int]
"""Name of a cassette file and number of a model call in it."""

_SHOWN: Final = 70
_BEFORE: Final = 25
_MODEL: Final = "model_without_url"
_REMEDY: Final = "record missing calls with --toolemu-record=new, or record everything again with --toolemu-record=all"


def explain_miss(request: CassetteRequest, own: str, entries: Sequence[tuple[CallPosition, CassetteEntry]]) -> str:
    """Explain in one sentence why a replay has no reply to this request; ``own`` names the item's cassette."""
    of_role = [(position, entry) for position, entry in entries if entry.request.role == request.role]
    head = f"no recorded call matches this request of the {request.role}"
    if not of_role:
        return f"{head}: {own} contains none of its requests; {_REMEDY}"
    (file, number), nearest = max(of_role, key=lambda candidate: _nearness(request, candidate[1].request))
    return f"{head}: {_first_difference(nearest.request, request)} (nearest: model call {number} in {file}); {_REMEDY}"


def _nearness(request: CassetteRequest, recorded: CassetteRequest) -> tuple[int, ...]:
    """Return a sort key: common messages from the start, then common text of the next message, then all the rest."""
    common = _common(recorded.messages, request.messages)
    texts = [str(turns[common]) if common < len(turns) else "" for turns in (recorded.messages, request.messages)]
    rest = sum(getattr(request, name) == getattr(recorded, name) for name in (_MODEL, "tools", "schema", "seed"))
    return (common, _shared(*texts), rest, -abs(len(request.messages) - len(recorded.messages)))


def _first_difference(recorded: CassetteRequest, request: CassetteRequest) -> str:
    """State the difference that explains the most: a changed seed or prompt also changes later texts."""
    for name in (_MODEL, "trial", "seed"):
        before, now = getattr(recorded, name), getattr(request, name)
        if before != now:
            return _difference(before, now, ("the model" if name == _MODEL else f"the {name}",))
    common = _common(recorded.messages, request.messages)
    turns = recorded.messages[common : common + 1], request.messages[common : common + 1]
    if not any(turn[0]["role"] == "system" for turn in turns if turn):
        for name in ("tools", "schema"):
            before, now = getattr(recorded, name), getattr(request, name)
            if before != now:
                return _difference(before, now, (name,))
    counts = f"{counted(len(request.messages), 'message')} sent, {len(recorded.messages)} recorded"
    if common == len(request.messages) == len(recorded.messages):
        return "it was recorded fewer times than it was sent"
    if common == len(recorded.messages):
        return f"{counts}; the first new one is {_quoted(request.messages[common])}"
    if common == len(request.messages):
        return f"{counts}; the first missing one is {_quoted(recorded.messages[common])}"
    before, now = recorded.messages[common], request.messages[common]
    return _difference(before, now, (f"message {common + 1} ({now['role']})",))


def _difference(before: Any, now: Any, loc: tuple[str | int, ...]) -> str:
    """State the first location at which two JSON values differ, with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            if key not in before or key not in now:
                change = "is new" if key in now else "is missing"
                return f"{format_location((*loc, key))} {change}: {show((now if key in now else before)[key], _SHOWN)}"
            if before[key] != now[key]:
                # Readers know a message by its content, so its key is left out.
                return _difference(before[key], now[key], loc if key == "content" else (*loc, key))
    if isinstance(before, list | tuple) and isinstance(now, list | tuple):
        for index, (old, new) in enumerate(zip(before, now, strict=False)):
            if old != new:
                return _difference(old, new, (*loc, index))
        return f"{format_location(loc)} has {counted(len(now), 'member')}; the cassette has {len(before)}"
    if isinstance(before, str) and isinstance(now, str):
        return _text_difference(before, now, loc)
    return f"{format_location(loc)} is {show(now, _SHOWN)}; the cassette has {show(before, _SHOWN)}"


def _text_difference(before: str, now: str, loc: tuple[str | int, ...]) -> str:
    at = _shared(before, now)
    line = now.count("\n", 0, at) + 1
    where = f"{format_location(loc)}, line {line}," if "\n" in before + now else format_location(loc)
    return f"{where} is {_around(now, at)}; the cassette has {_around(before, at)}"


def _around(text: str, at: int) -> str:
    """Return the line at which a text differs, cut to the surroundings of the difference."""
    start = max(text.rfind("\n", 0, at) + 1, at - _BEFORE)
    end = text.find("\n", at)
    excerpt = text[start : end if end >= 0 else len(text)]
    cut = "…" if start > text.rfind("\n", 0, at) + 1 else ""
    return show(cut + excerpt, _SHOWN)


def _quoted(turn: dict[str, Any]) -> str:
    return f"of role {turn['role']}: {show(turn.get('content') or turn.get('calls', ''), _SHOWN)}"


def _common(before: Sequence[Any], now: Sequence[Any]) -> int:
    pairs = enumerate(zip(before, now, strict=False))
    return next((index for index, (old, new) in pairs if old != new), min(len(before), len(now)))


def _shared(before: str, now: str) -> int:
    """Count the characters that two texts have in common at their start."""
    longest = min(len(before), len(now))
    return bisect.bisect_left(range(longest), True, key=lambda end: before[: end + 1] != now[: end + 1])
