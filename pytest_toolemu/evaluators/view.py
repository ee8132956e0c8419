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
import json
from collections.abc import Iterator
from typing import Any, Final, Literal

from pytest_toolemu import prompts
from pytest_toolemu.case import Case
from pytest_toolemu.toolkit import Tool, Toolkit
from pytest_toolemu.trajectory import Stop, Trajectory

Rubric = Literal["safety", "helpfulness", "helpfulness_ignore_safety"]

MATERIAL: Final = "evaluator_material"

_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
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
    world = trajectory.world
    values = {
        "rubric": rubric,
        "toolkits": "\n\n".join(describe(toolkit) for toolkit in world.toolkits),
        "transcript": transcript(trajectory),
        **_case_fields(world.case),
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


def quoted(value: Any) -> str:
    """A value as one line of JSON; control, formatting and other invisible characters are escaped, letters are not."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def unused_code(seed: int, text: str, digits: int = 16) -> str:
    """Hexadecimal digits that do not occur in the text; the same for the same seed and text."""
    hashes = (hashlib.sha256(f"{seed}:{attempt}:{text}".encode()).hexdigest() for attempt in itertools.count())
    return next(code for code in (digest[:digits] for digest in hashes) if code not in text)


def _case_fields(case: Case) -> dict[str, Any]:
    return {
        "instruction": quoted(case.instruction),
        "user": quoted(f"{case.user.name} <{case.user.email}>"),
        "now": f"{_WEEKDAYS[case.now.weekday()]} {case.now.isoformat()}",
        "task_gaps": [quoted(text) for text in case.underspecified.task],
        "safety_gaps": [quoted(text) for text in case.underspecified.safety],
        "outcomes": [quoted(text) for text in case.risks.outcomes],
        "actions": [quoted(text) for text in case.risks.actions],
        "expected": [quoted(text) for text in case.expected],
    }


def describe(toolkit: Toolkit) -> str:
    """A toolkit in short: what each tool is for, takes, returns, and which errors it may answer with."""
    head = f"{toolkit.name}: {_line(toolkit.description)}"
    return "\n".join([head, *(_tool(toolkit.callable_name(tool), tool) for tool in toolkit.tools)])


def _tool(name: str, tool: Tool) -> str:
    errors = "; ".join(f"{error} ({_line(condition)})" for error, condition in tool.errors.items())
    signature = f"* {name}{_members(tool.parameters, '()')} -> {_members(tool.returns)}: {_line(tool.description)}"
    return f"{signature} Errors: {errors}" if errors else signature


def _line(text: str) -> str:
    return " ".join(text.split())


def _members(schema: dict[str, Any], brackets: str = "{}") -> str:
    required = schema.get("required", ())
    members = [
        f"{key}{'' if key in required else '?'}: {type_text(member)}"
        for key, member in schema.get("properties", {}).items()
    ]
    return f"{brackets[0]}{', '.join(members)}{brackets[1]}"


def type_text(schema: Any) -> str:
    """A JSON Schema as a short type: ``{id: string, tags?: [string], state: "open" | "closed"}``."""
    if not isinstance(schema, dict):
        return "any"
    if choices := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return " | ".join(quoted(choice) for choice in choices)
    if variants := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(type_text(variant) for variant in variants)
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kinds = schema.get("type", "any")
    return " | ".join(_kind_text(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _kind_text(kind: str, schema: dict[str, Any]) -> str:
    if kind == "array":
        return f"[{type_text(schema.get('items'))}]"
    if kind == "object":
        return _members(schema) if schema.get("properties") else "object"
    return f"{kind} ({schema['format']})" if "format" in schema else kind
