"""Reads runs of this package, whose tools are already defined as in a toolkit's file."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_toolemu.authoring.importers.notes import Notes, add_note
from pytest_toolemu.authoring.importers.traces.conversation import Conversation, Json, ObservedTool, TraceEvent
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.toolkit import callable_tools


def is_record(entry: Json) -> bool:
    """Return whether an entry is the record of a run."""
    return {"case_id", "steps", "outcome"} <= entry.keys()


def recorded_conversation(run: Run, notes: Notes) -> Conversation:
    """Return the conversation of a run. Its tools keep their results, errors, and effects, but not their rows."""
    for poisoned in run.case.poisoned_tools:
        kind = (
            "models that emulate or judge will read the hostile text of a poisoned tool, too; move it to "
            "'poisoned_tools' of the case"
        )
        add_note(notes, kind, poisoned.tool)
    tools = [
        ObservedTool(name, tool.description, tool.parameters, tool.model_dump(mode="json", exclude_defaults=True))
        for name, _, tool in callable_tools(run.toolkits)
    ]
    for tool in tools:
        if tool.definition is not None:
            tool.definition.pop("operation", None)
    return Conversation(list(_events(run)), tools)


def _events(run: Run) -> Iterator[TraceEvent]:
    yield TraceEvent("user", run.case.instruction)
    for step in run.steps:
        call_id = str(step.call.index)
        yield TraceEvent("call", step.call.name, call_id, step.call.arguments)
        yield TraceEvent("result", "", call_id, step.observation.content, step.observation.is_error)
    yield TraceEvent("assistant", run.answer)
