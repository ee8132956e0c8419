"""The blind transcript of a run for a person who labels it.

It shows what a judge sees, but no judge's verdict, check result, or other label.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core.case import without_hostile_texts
from pytest_toolemu.core.run import Run, claims_note
from pytest_toolemu.core.toolkit import callable_tools
from pytest_toolemu.formats.text import visible
from pytest_toolemu.prompts import clock

_MAX_TEXT: Final = 8_000
_ENDINGS: Final = {
    "quit": "The agent quit",
    "step_limit": "The agent was stopped at the step limit",
    "token_limit": "The agent was stopped at the token limit",
    "unknown": "The record ends here",
}


@dataclass(frozen=True)
class BlindPart:
    """A part of the transcript: a title of this program, and texts of a user, model, or tool below it.

    ``is_list``: the texts are a list. ``follows``: the part belongs to the one before, as a result does to its call.
    """

    title: str
    texts: tuple[str, ...]
    is_list: bool = False
    follows: bool = False


def blind_lines(run: Run) -> Iterator[str]:
    """Yield the case and the transcript.

    Text of a user, model, or tool follows a bar, so that it cannot imitate the lines of this program.
    """
    for part in blind_case(run):
        yield part.title
        for text in part.texts:
            yield from _barred(f"- {text}" if part.is_list else text)
    for part in blind_steps(run):
        if not part.follows:
            yield ""
        yield part.title
        for text in part.texts:
            yield from _barred(text)


def blind_case(run: Run) -> Iterator[BlindPart]:
    """Yield what the user asked for, what is at stake, and the tools."""
    case = run.case
    facts = case.conversation.facts if case.conversation and run.turns > 1 else ()
    yield BlindPart("The user asks:", (case.instruction,))
    yield BlindPart(_in_one_line(f"by {case.user.name} <{case.user.email}>, {clock(case.now)}"), ())
    for title, texts in (
        ("Unstated facts:", case.underspecified.task),
        ("Unstated constraints:", case.underspecified.safety),
        ("What may go wrong:", case.risks.outcomes),
        ("Risky actions:", case.risks.actions),
        ("Expected achievements:", case.expected),
        ("Desirable, but not essential:", case.desirable),
        ("What the user says if asked:", [fact.says for fact in facts]),
    ):
        if texts:
            yield BlindPart(title, tuple(map(str, texts)), is_list=True)
    tools = callable_tools(without_hostile_texts(run.toolkits, case.poisoned_tools))
    descriptions = (f"{name}: {' '.join(tool.description.split())}" for name, _, tool in tools)
    yield BlindPart("Tools:", tuple(descriptions), is_list=True)
    if case.poisoned_tools:
        title = "Hostile text in the descriptions that the agent saw:"
        yield BlindPart(title, tuple(map(str, case.poisoned_tools)), is_list=True)


def blind_steps(run: Run) -> Iterator[BlindPart]:
    """Yield what the agent did, said, and was told, in order."""
    for index, step in enumerate(run.steps, 1):
        yield from _dialogue(run, index - 1)
        yield BlindPart(_in_one_line(f"Call {index}: {step.call.name}"), (_text(step.call.arguments),))
        if step.observation.is_unknown:
            yield BlindPart("result unknown", (), follows=True)
        else:
            yield BlindPart("returned", (_text(step.observation.content),), follows=True)
    yield from _dialogue(run, len(run.steps))
    if note := claims_note(run.steps, run.claims):
        yield BlindPart(f"{note[0].upper()}{note[1:]}. The agent's own claims:", run.claims)
    is_ended = run.stop in _ENDINGS
    if is_ended:
        yield BlindPart(f"{_ENDINGS[run.stop]}:", (run.stop_reason,))
    if not is_ended or run.answer:
        yield BlindPart("The agent's answer:", (run.answer,), follows=is_ended)


def _dialogue(run: Run, step: int) -> Iterator[BlindPart]:
    """Yield what agent and user said directly before a call."""
    for one in run.dialogue:
        if one.step == step:
            yield BlindPart("The agent says:" if one.by == "agent" else "The user replies:", (one.text,))


def _in_one_line(text: str) -> str:
    return visible(text.replace("\n", " "))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _barred(text: str) -> Iterator[str]:
    # A lone surrogate cannot be encoded, and so cannot be printed.
    printable = visible(text.encode("utf-8", "replace").decode())
    if len(printable) > _MAX_TEXT:
        printable = f"{printable[:_MAX_TEXT]}… ({len(printable):,} characters; the record contains the full text)"
    for line in printable.split("\n") or [""]:
        yield f"  | {line}"
