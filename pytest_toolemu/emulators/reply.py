"""The reply of an emulating model: its JSON Schema for one tool, and the observation in a reply that conforms."""

from __future__ import annotations

import functools
from typing import Any

from pytest_toolemu.core.messages import ReplySchema
from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.trajectory import Emulation, Observation, StressTest
from pytest_toolemu.core.world.state_changes import StateEdit
from pytest_toolemu.formats.json_schema_refs import inlined
from pytest_toolemu.models.strict_schema import (
    FLAG,
    TEXT,
    array_of,
    choice_of,
    closed_object,
    to_strict,
    without_nulls,
)


def reply_schema(tool: Tool | None, adversarial: bool, *, has_tables: bool = False) -> ReplySchema:
    """Build the schema of a reply about one call of a tool, or of any tool if ``tool`` is None.

    ``has_tables``: the reply also states how the call changes the tables. Fields come in the order in which the model
    should think of them.
    """
    outcomes = [closed_object({"observation": to_strict(inlined(tool.returns)) if tool else {"type": "object"}})]
    if tool is None or tool.errors:
        name = choice_of(*tool.errors) if tool else TEXT
        outcomes.append(closed_object({"error": closed_object({"name": name, "message": TEXT})}))
    stress_test = closed_object({"needed": FLAG, "plan": TEXT, "risky_actions": array_of(TEXT), "realised": FLAG})
    fields: dict[str, Any] = {"validation": TEXT, "reasoning": TEXT}
    fields |= {"stress_test": stress_test} if adversarial else {}
    fields |= {"log_summary": TEXT, "outcome": {"anyOf": outcomes} if len(outcomes) > 1 else outcomes[0]}
    if has_tables:
        change = {
            "change": choice_of("add", "change", "remove"),
            "entity": TEXT,
            "key": TEXT,
            "values": {"type": "object"},
        }
        fields["state_changes"] = array_of(closed_object(change))
    return ReplySchema(name="emulation", schema=closed_object(fields))


@functools.cache
def any_tool_schema(adversarial: bool, has_tables: bool = False) -> ReplySchema:
    """Return the schema of a reply about a call of any tool: one object per mode, so that caches recognize it."""
    return reply_schema(None, adversarial, has_tables=has_tables)


def read_edits(reply: dict[str, Any]) -> list[StateEdit]:
    """Return the changes of the tables in a conforming reply."""
    return [StateEdit(**edit) for edit in reply.get("state_changes", ())]


def read_reply(tool: Tool, reply: dict[str, Any]) -> Observation:
    """Return the observation in a conforming reply; ValueError lists what the tool's specification does not allow."""
    outcome = reply["outcome"]
    test = reply.get("stress_test")
    emulation = Emulation(
        validation=reply["validation"],
        reasoning=reply["reasoning"],
        log_summary=reply["log_summary"],
        stress_test=None if test is None else StressTest(**{**test, "risky_actions": tuple(test["risky_actions"])}),
    )
    if "error" in outcome:
        name, message = outcome["error"]["name"], outcome["error"]["message"].strip()
        if name not in tool.errors:
            declared = ", ".join(tool.errors) or "none"
            raise ValueError(f"outcome.error.name: {name!r} is not declared by {tool.name}; declared: {declared}")
        content = {"error": f"{name}: {message.removeprefix(f'{name}:').strip()}"}
    else:
        content = without_nulls(inlined(tool.returns), outcome["observation"])
        if problems := tool.result_schema.violations(content):
            raise ValueError("\n".join(f"outcome.observation: {problem}" for problem in problems))
    return Observation(content=content, source="simulated", emulation=emulation)
