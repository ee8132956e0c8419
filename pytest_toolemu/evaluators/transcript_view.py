"""Everything that a judge sees of a trajectory.

A judge sees an outline of the toolkits, the hostile texts of poisoned tools, the parts of the case that the rubric
needs, calls, observations, what agent and user said, the answer, how the run ended, and how the case's rows differ at
the end from the beginning.
It never sees the agent's thoughts, the emulator's notes, the source of an observation, checks, or references.

Results of tools and the agent's words may be written to influence the judge. So each record of the transcript is one
line of JSON in which all but printable characters are escaped, which keeps any text from starting a line of its own;
and the lines stand between two markers with a code that occurs in none of them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from typing import Any, Final, Literal

from pytest_toolemu import prompts
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.references import Consents
from pytest_toolemu.core.trajectory import Trajectory, TurnEnding, said_lines
from pytest_toolemu.core.world.state_changes import net_changes
from pytest_toolemu.formats.visible_text import quoted
from pytest_toolemu.prompts import clock, outline

Rubric = Literal["safety", "helpfulness", "helpfulness_ignore_safety"]

JUDGED_TEXT: Final = "evaluator/material"
DIALOGUE: Final = "evaluator/dialogue"
KNOWLEDGE: Final = "evaluator/user_knowledge"

_GIVEN: Final[dict[Consents, str]] = {
    "if_disclosed": "only for what the agent has disclosed before",
    "never": "never; the user refuses",
    "always": "hastily, whatever the agent has disclosed",
}

_ENDINGS: Final[dict[TurnEnding, str]] = {
    "final": "with a final answer",
    "quit": "by quitting",
    "step_limit": "stopped at the limit on tool calls",
    "token_limit": "stopped at the limit on tokens",
    "timeout": "stopped by a time-out",
    "error": "stopped by an error",
}


def judged_text(trajectory: Trajectory, rubric: Rubric) -> str:
    """Return the text that a judge evaluates: toolkits, case and transcript, in this order."""
    resolved_case = trajectory.resolved_case
    values = {
        "rubric": rubric,
        "toolkits": "\n\n".join(outline(toolkit) for toolkit in resolved_case.trusted_toolkits),
        "hostile_texts": [str(poisoned) for poisoned in resolved_case.case.poisoned_tools],
        "transcript": transcript(trajectory),
        "has_rows": bool(resolved_case.case.world),
        **_case_fields(resolved_case.case),
    }
    # Rendered once without a code first: the code must not occur anywhere in the text, not only in the transcript.
    code = unused_code(trajectory.seed, prompts.render(JUDGED_TEXT, code="", **values))
    return prompts.render(JUDGED_TEXT, code=code, **values)


def user_knowledge(case: Case) -> str:
    """Return what the user of a conversation says if asked, as a text for a judge."""
    conversation = case.conversation
    facts = conversation.facts if conversation else ()
    consents = conversation.consents if conversation else "never"
    return prompts.render(
        KNOWLEDGE,
        facts=[quoted(fact.says) for fact in facts if not fact.requires],
        permissions=[quoted(fact.says) for fact in facts if fact.requires],
        given=_GIVEN[consents],
    )


def transcript(trajectory: Trajectory) -> str:
    """Return calls, observations, dialogue, changes of the rows, and the end of the run, each as one line of JSON."""
    return "\n".join(quoted(record) for record in _records(trajectory))


def _records(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    for step in trajectory.steps:
        yield from said_lines(trajectory.dialogue, step.call.index)
        yield {"step": step.call.index, "tool": step.call.name, "arguments": step.call.arguments}
        yield {"step": step.call.index, "observation": step.observation.content}
    yield from said_lines(trajectory.dialogue, len(trajectory.steps))
    if trajectory.resolved_case.case.world:
        for change in net_changes(change for step in trajectory.steps for change in step.changes):
            values = change.model_dump(exclude={"entity", "key", "change"}, exclude_defaults=True)
            yield {change.change: change.entity, "key": change.key, **values}
    end: dict[str, Any] = {"ended": _ENDINGS[trajectory.stop]}
    if trajectory.stop == "quit":
        end["reason"] = trajectory.stop_reason
    if trajectory.stop == "final" or trajectory.answer:
        end["answer"] = trajectory.answer
    yield end


def unused_code(seed: int, text: str, digits: int = 16) -> str:
    """Return hexadecimal digits that do not occur in the text; the same for the same seed and text."""
    hashes = (hashlib.sha256(f"{seed}:{attempt}:{text}".encode()).hexdigest() for attempt in itertools.count())
    return next(code for code in (digest[:digits] for digest in hashes) if code not in text)


def _case_fields(case: Case) -> dict[str, Any]:
    return {
        "instruction": quoted(case.instruction),
        "user": quoted(f"{case.user.name} <{case.user.email}>"),
        "now": clock(case.now),
        "task_gaps": [quoted(text) for text in case.underspecified.task],
        "safety_gaps": [quoted(text) for text in case.underspecified.safety],
        "outcomes": [quoted(text) for text in case.risks.outcomes],
        "actions": [quoted(text) for text in case.risks.actions],
        "expected": [quoted(text) for text in case.expected],
        "desirable": [quoted(text) for text in case.desirable],
    }
