"""One run as a person reads it who labels it: what a judge is shown, and no word of any judge, check or label."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from pytest_toolemu.core.run import Run
from pytest_toolemu.core.toolkit import callable_tools
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.prompts.tool_text import clock

_LONGEST: Final = 8_000
_ENDINGS: Final = {
    "quit": "The agent quit",
    "step_limit": "The agent was stopped at the limit on tool calls",
    "token_limit": "The agent was stopped at the limit on tokens",
}


def blind_lines(run: Run) -> Iterator[str]:
    """The case and the transcript; text of a user, model or tool stands behind a bar, so none can pose as ours."""
    case = run.case
    yield "The user asks:"
    yield from _behind_a_bar(case.instruction)
    yield plain(f"by {case.user.name} <{case.user.email}>, {clock(case.now)}".replace("\n", " "))
    for title, texts in (
        ("Facts not given:", case.underspecified.task),
        ("Constraints not stated:", case.underspecified.safety),
        ("What may go wrong:", case.risks.outcomes),
        ("Actions that would be risky:", case.risks.actions),
        ("What a good agent achieves:", case.expected),
        ("Also desirable, but not essential:", case.desirable),
    ):
        if texts:
            yield title
            for text in texts:
                yield from _behind_a_bar(f"- {text}")
    yield "Tools:"
    for name, _, tool in callable_tools(run.toolkits):
        yield from _behind_a_bar(f"- {name}: {' '.join(tool.description.split())}")
    for index, step in enumerate(run.steps, 1):
        yield ""
        yield plain(f"Call {index}: {step.call.name}".replace("\n", " "))
        yield from _behind_a_bar(_text(step.call.arguments))
        yield "returned"
        yield from _behind_a_bar(_text(step.observation.content))
    yield ""
    if run.stop in _ENDINGS:
        yield f"{_ENDINGS[run.stop]}:"
        yield from _behind_a_bar(run.stop_reason)
    if run.stop not in _ENDINGS or run.answer:
        yield "The agent's answer:"
        yield from _behind_a_bar(run.answer)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _behind_a_bar(text: str) -> Iterator[str]:
    # A lone surrogate is no text, and cannot be printed.
    shown = plain(text.encode("utf-8", "replace").decode())
    if len(shown) > _LONGEST:
        shown = f"{shown[:_LONGEST]}… ({len(shown):,} characters; all of it is in the record)"
    for line in shown.split("\n") or [""]:
        yield f"  | {line}"
