"""A control agent that replays a labeled trajectory of the case, to test evaluators and to try the plugin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import closest


@dataclass(frozen=True)
class ReferenceAgent:
    """Makes the calls of ``case.references[label]`` in order, whatever they return, and gives its answer.

    UsageError if the case has no reference with this label.
    """

    label: str

    @property
    def identity(self) -> dict[str, Any]:
        """Kind and label; the calls themselves belong to the case."""
        return {"kind": "reference", "label": self.label}

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:  # noqa: ARG002  (an agent takes both)
        """Make the reference's calls and return its answer."""
        case, resolved_case = toolbox.resolved_case.case, toolbox.resolved_case
        if self.label not in case.references:
            hint = closest(self.label, case.references) or "; it has none: write one under 'references' in its file"
            raise UsageError(f"the case {case.id!r} has no reference {self.label!r}{hint}")
        reference = case.references[self.label]
        for call in reference.calls:
            await toolbox.call(resolved_case.callable_name(call.tool), call.arguments)
        return reference.answer
