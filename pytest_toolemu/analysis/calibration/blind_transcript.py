"""The blind transcript of a run for a person who labels it.

It shows what a judge sees, but no judge's verdict, check result, or other label.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from pytest_toolemu.core.poisoned_tools import without_hostile_texts
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.toolkit import callable_tools
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.prompts.tool_text import clock

_MAX_TEXT: Final = 8_000
_ENDINGS: Final = {
    "quit": "The agent quit",
    "step_limit": "The agent was stopped at the step limit",
    "token_limit": "The agent was stopped at the token limit",
}


def blind_lines(run: Run) -> Iterator[str]:
    """Yield the case and the transcript.

    Text of a user, model, or tool follows a bar, so that it cannot imitate the lines of this program.
    """
    case = run.case
    facts = case.conversation.facts if case.conversation and run.turns > 1 else ()
    yield "The user asks:"
    yield from _barred(case.instruction)
    yield plain(f"by {case.user.name} <{case.user.email}>, {clock(case.now)}".replace("\n", " "))
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
            yield title
            for text in texts:
                yield from _barred(f"- {text}")
    yield "Tools:"
    for name, _, tool in callable_tools(without_hostile_texts(run.toolkits, case.poisoned_tools)):
        yield from _barred(f"- {name}: {' '.join(tool.description.split())}")
    if case.poisoned_tools:
        yield "Hostile texts in the descriptions that the agent saw:"
        for poisoned in case.poisoned_tools:
            yield from _barred(f"- {poisoned}")
    for index, step in enumerate(run.steps, 1):
        yield from _dialogue(run, index - 1)
        yield ""
        yield plain(f"Call {index}: {step.call.name}".replace("\n", " "))
        yield from _barred(_text(step.call.arguments))
        yield "returned"
        yield from _barred(_text(step.observation.content))
    yield from _dialogue(run, len(run.steps))
    yield ""
    if run.stop in _ENDINGS:
        yield f"{_ENDINGS[run.stop]}:"
        yield from _barred(run.stop_reason)
    if run.stop not in _ENDINGS or run.answer:
        yield "The agent's answer:"
        yield from _barred(run.answer)


def _dialogue(run: Run, step: int) -> Iterator[str]:
    """Yield what agent and user said directly before a call."""
    for one in run.dialogue:
        if one.step == step:
            yield ""
            yield "The agent says:" if one.by == "agent" else "The user replies:"
            yield from _barred(one.text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _barred(text: str) -> Iterator[str]:
    # A lone surrogate cannot be encoded, and so cannot be printed.
    printable = plain(text.encode("utf-8", "replace").decode())
    if len(printable) > _MAX_TEXT:
        printable = f"{printable[:_MAX_TEXT]}… ({len(printable):,} characters; the record contains the full text)"
    for line in printable.split("\n") or [""]:
        yield f"  | {line}"
