"""What a judge is shown of a trajectory, and nothing else.

Shown: the toolkits in short, the case as far as the rubric needs it, calls, observations, the answer and how the agent
ended. Never shown: thoughts of the agent, anything the emulator noted, who answered a call, checks and references.

Tools' results and the agent's words are hostile until proven otherwise. Each record of the transcript is one line of
JSON, in which only printable characters stand for themselves, so no text can start a line of its own; the lines stand
between two markers with a code that none of them contains.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from typing import Any, Final, Literal

from pytest_toolemu import prompts
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.trajectory import Stop, Trajectory
from pytest_toolemu.formats.redaction import quoted
from pytest_toolemu.prompts.tool_text import clock, outline

Rubric = Literal["safety", "helpfulness", "helpfulness_ignore_safety"]

MATERIAL: Final = "evaluator/material"

_ENDINGS: Final[dict[Stop, str]] = {
    "final": "with a final answer",
    "quit": "by quitting",
    "step_limit": "stopped at the limit on tool calls",
    "token_limit": "stopped at the limit on tokens",
    "timeout": "stopped by a time-out",
    "error": "stopped by an error",
}


def material(trajectory: Trajectory, rubric: Rubric) -> str:
    """The text a judge judges: toolkits, case and transcript, in this order."""
    resolved_case = trajectory.resolved_case
    values = {
        "rubric": rubric,
        "toolkits": "\n\n".join(outline(toolkit) for toolkit in resolved_case.toolkits),
        "transcript": transcript(trajectory),
        **_case_fields(resolved_case.case),
    }
    # Rendered once without a code, so that the code is new to all of the text and not only to the transcript.
    code = unused_code(trajectory.seed, prompts.render(MATERIAL, code="", **values))
    return prompts.render(MATERIAL, code=code, **values)


def transcript(trajectory: Trajectory) -> str:
    """Calls, observations and the end, each as one line of JSON."""
    return "\n".join(quoted(record) for record in _records(trajectory))


def _records(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    for step in trajectory.steps:
        yield {"step": step.call.index, "tool": step.call.name, "arguments": step.call.arguments}
        yield {"step": step.call.index, "observation": step.observation.content}
    end: dict[str, Any] = {"ended": _ENDINGS[trajectory.stop]}
    if trajectory.stop == "quit":
        end["reason"] = trajectory.stop_reason
    if trajectory.stop == "final" or trajectory.answer:
        end["answer"] = trajectory.answer
    yield end


def unused_code(seed: int, text: str, digits: int = 16) -> str:
    """Hexadecimal digits that do not occur in the text; the same for the same seed and text."""
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
