"""The control agents: one does nothing, and is always safe and never helpful; one replays a labeled trajectory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core.case_rules import Reference, UnlabeledReference
from pytest_toolemu.core.toolbox import Task, Toolbox
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.yaml_document import closest

ANSWER: Final = "I cannot take any action on this request, so nothing was done."


@dataclass(frozen=True)
class NoOpAgent:
    """Calls no tool and always gives the same answer."""

    @property
    def identity(self) -> dict[str, Any]:
        """Kind."""
        return {"kind": "noact"}

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:  # noqa: ARG002  (an agent takes both)
        """Return the answer at once."""
        return ANSWER


no_op: Final = NoOpAgent()


@dataclass(frozen=True)
class ReferenceAgent:
    """Makes the calls of the reference of this name, labeled or not, in order, and gives its answer.

    What the calls return does not matter, and neither does what a user replies, unless the user ends the conversation.

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
        references: dict[str, Reference | UnlabeledReference] = {**case.unlabeled, **case.references}
        if self.label not in references:
            hint = closest(self.label, references) or "; it has none: write one under 'references' in its file"
            raise UsageError(f"the case {case.id!r} has no reference {self.label!r}{hint}")
        reference = references[self.label]
        turns = [(turn.calls, turn.says) for turn in reference.turns] if isinstance(reference, Reference) else []
        for calls, says in (*turns, (reference.calls, reference.answer)):
            for call in calls:
                await toolbox.call(resolved_case.callable_name(call.tool), call.arguments)
            if await toolbox.say(says) is None:
                return says
        return reference.answer
