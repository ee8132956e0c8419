"""Reads one turn of the text protocol from left to right, so that nothing a model makes up after a call counts.

A label stands at the start of a line, perhaps in bold or as a heading. Whichever comes first decides: a call that is
complete, a final answer, or a wish to quit. From an observation on, which only the world can make, all is thrown away.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, NoReturn


@dataclass(frozen=True)
class TextCall:
    """A complete call: ``kept`` is the turn up to its end, ``discarded`` what followed."""

    name: str
    arguments: dict[str, Any]
    kept: str
    discarded: str


@dataclass(frozen=True)
class TextFinal:
    """The final answer."""

    answer: str


@dataclass(frozen=True)
class TextQuit:
    """The reason for which the agent quits."""

    reason: str


@dataclass(frozen=True)
class TextProblem:
    """A turn that says nothing that can be carried out, and why; ``kept`` and ``discarded`` as for a call."""

    problem: str
    kept: str
    discarded: str


Turn = TextCall | TextFinal | TextQuit | TextProblem

_LABEL: Final = re.compile(
    r"^[ \t]{0,3}(?:\#{1,6}[ \t]{0,3})?[*_`]{0,3}"
    r"(?P<name>(?i:Thought|Action[ \t]?Input|Action|Observation|Final[ \t]?Answer)|QUIT)"
    r"[ \t]{0,3}[*_`]{0,3}[ \t]{0,3}:[*_`]{0,3}",
    re.MULTILINE,
)
# Local models may put their thinking, drafts of calls included, before the turn; the opening tag may be missing.
_THINKING: Final = re.compile(r"\s*<think>.*?(?:</think>|\Z)|.*?\n</think>[ \t]*\n", re.DOTALL)
_OPENING: Final = re.compile(r"\s*(?:`{1,3}[ \t]*(?:json\b)?\s*)?", re.IGNORECASE)
_CLOSING: Final = re.compile(r"\s*`{1,3}(?!`)")
_DECORATION: Final = " \t\r\n*`'\"[]"


def read_turn(text: str, *, quits: bool) -> Turn:
    """What a turn says; never raises. ``QUIT:`` counts only where the prompt allows quitting."""
    thinking = _THINKING.match(text)
    label = _LABEL.search(text, thinking.end() if thinking else 0)
    while label:
        following = _LABEL.search(text, label.end())
        match _kind(label):
            case "finalanswer":
                return TextFinal(text[label.end() :].strip())
            case "quit" if quits:
                return TextQuit(text[label.end() :].strip())
            case "observation":
                return _problem("it has an observation, but no complete action before it", text, label.start())
            case "action" if following and _kind(following) == "actioninput":
                return _call(text, text[label.end() : following.start()], following.end())
        label = following
    return _problem("it has neither a complete action nor a final answer", text, len(text))


def text_before_decision(text: str) -> str:
    """Return what a turn says before its action, its final answer or ``QUIT:``, without a leading ``Thought:``."""
    thinking = _THINKING.match(text)
    start = thinking.end() if thinking else 0
    labels = [(label, _kind(label)) for label in _LABEL.finditer(text, start)]
    end = next((label.start() for label, kind in labels if kind not in ("thought", "actioninput")), len(text))
    said = text[start:end].strip()
    opening = _LABEL.match(said)
    if opening and _kind(opening) == "thought":
        said = said[opening.end() :]
    return f"{text[:start]}{said}".strip()


def _kind(label: re.Match[str]) -> str:
    return re.sub(r"[ \t]", "", label["name"]).lower()


def _call(text: str, name: str, start: int) -> Turn:
    """The call whose input begins at ``start``.

    Where the input is broken the turn ends: labels further on may stand inside one of its strings.
    """
    name = name.strip(_DECORATION)
    opening = _OPENING.match(text, start)
    begin = opening.end() if opening else start
    if not name or "\n" in name:
        return _problem("Action is not the name of one tool", text, start)
    if not text.startswith("{", begin):
        return _problem("Action Input is not a JSON object", text, start)
    try:
        arguments, end = _DECODER.raw_decode(text, begin)
        json.dumps(arguments, ensure_ascii=False).encode()  # an escaped lone surrogate is no text
    except (ValueError, RecursionError) as error:
        return _problem(f"Action Input is not a valid JSON object: {error}", text, start)
    fence = _CLOSING.match(text, end) if "`" in text[start:begin] else None
    end = fence.end() if fence else end
    return TextCall(name, arguments, text[:end].strip(), text[end:].strip())


def _problem(problem: str, text: str, start: int) -> TextProblem:
    """A turn that is no use, without the observations that it makes up from ``start`` on."""
    invented = next(
        (label.start() for label in _LABEL.finditer(text, start) if _kind(label) == "observation"), len(text)
    )
    return TextProblem(problem, text[:invented].strip(), text[invented:].strip())


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Line breaks inside strings are accepted, as models write long texts that way.
_DECODER: Final = json.JSONDecoder(strict=False, parse_constant=_no_number)
