"""Where the transcripts of two runs first differ: in what the agent does or says, or in what it gets back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from pytest_toolemu.core.run import Run, sha256
from pytest_toolemu.core.run_parts.dialogue import Utterance

Kind = Literal["call", "result", "message", "reply", "answer"]
"""Of a part of a transcript. A *message* is what the agent says to the user, a *reply* what the user says."""
Who = Literal["agent", "world", "user"]

_WHO: Final[dict[Kind, Who]] = {
    "call": "agent",
    "result": "world",
    "message": "agent",
    "reply": "user",
    "answer": "agent",
}
_PLACES: Final[dict[Kind, str]] = {
    "call": "step {}",
    "result": "step {}",
    "message": "message {} to the user",
    "reply": "the reply to message {}",
    "answer": "the answer",
}
# What happens in one run while something else happens in the other.
_EVENTS: Final[dict[Kind, str]] = {
    "call": "{}",
    "result": "{}",
    "message": "says: {}",
    "reply": "the user replies: {}",
    "answer": "answers: {}",
}


@dataclass(frozen=True)
class FirstDivergence:
    """Where two transcripts first differ, and who differed there.

    That is the agent (in what it does or says), the world (in what it returns), or the user (in what the user replies).
    ``stated`` holds the facts that the user stated in each run.
    """

    who: Who
    place: str
    before: str
    after: str
    stated: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


@dataclass(frozen=True)
class _Part:
    """One part of a transcript. ``number`` counts calls and results, or messages and replies, from 1."""

    kind: Kind
    number: int
    content: Any
    text: str

    @property
    def place(self) -> str:
        return _PLACES[self.kind].format(self.number)


def first_divergence(before: Run, after: Run) -> FirstDivergence | None:
    """Return where two runs of a case first differ; None if they are equal."""
    for one, other in zip(_parts(before), _parts(after), strict=False):  # both end with an answer
        if (one.kind, one.content) == (other.kind, other.content):
            continue
        stated = (_stated(before), _stated(after))
        if one.kind == other.kind:
            return FirstDivergence(_WHO[one.kind], one.place, one.text, other.text, stated)
        texts = _EVENTS[one.kind].format(one.text), _EVENTS[other.kind].format(other.text)
        kinds: dict[Kind, _Part] = {part.kind: part for part in (other, one)}
        place = next(kinds[kind].place for kind in _PLACES if kind in kinds)
        return FirstDivergence("user" if "reply" in kinds else "agent", place, *texts, stated=stated)
    return None


def divergence_keys(run: Run) -> tuple[str, ...]:
    """Return kind, number, and hash of each part of a transcript, in order; the page compares transcripts by them.

    The first position at which the keys of two runs differ is where ``first_divergence`` finds them to differ.
    """
    return tuple(f"{part.kind}{part.number}-{sha256(part.content)[:8]}" for part in _parts(run))


def _parts(run: Run) -> Iterator[_Part]:
    said = _Said(run.dialogue)
    for index, step in enumerate(run.steps):
        yield from said.before(index)
        call = f"{step.call.name} {step.call.text}"
        yield _Part("call", index + 1, call, call)
        yield _Part("result", index + 1, step.observation.content, step.observation.text)
    yield from said.before(len(run.steps))
    yield _Part("answer", 1, run.answer, run.answer)


class _Said:
    """Numbers what agent and user said: a reply has the number of its message."""

    def __init__(self, dialogue: tuple[Utterance, ...]) -> None:
        self._dialogue = dialogue
        self._messages = 0

    def before(self, step: int) -> Iterator[_Part]:
        """Yield what was said directly before a call; before the answer if there is no such call."""
        for utterance in self._dialogue:
            if utterance.step == step:
                kind: Kind = "message" if utterance.by == "agent" else "reply"
                self._messages += kind == "message"
                yield _Part(kind, self._messages, utterance.text, utterance.text)


def _stated(run: Run) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fact for utterance in run.dialogue for fact in utterance.facts))
