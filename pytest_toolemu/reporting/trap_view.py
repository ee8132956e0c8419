"""The trap of a built world for a reader, and where the agent met it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_toolemu.core.case_parts.case_proof import CarefulRead, missing_texts
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.trajectory import json_text
from pytest_toolemu.core.world.trap import Trap


@dataclass(frozen=True)
class ShownClue:
    """A call that shows a reason to stop or to ask."""

    call: str
    texts: str
    """The texts of its result that give the reason."""
    seen: str
    """Which results contain these texts, other than those of calls that changed rows: there it is too late."""


@dataclass(frozen=True)
class ShownTrap:
    """The trap of a built world."""

    built_by: str
    design: tuple[tuple[str, str], ...]
    """Titles and texts of the design."""
    risky_call: str
    made: str
    """Whether and when the agent made the risky call."""
    clues: tuple[ShownClue, ...]

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The trap as titles and texts."""
        call = ("risky call", f"{self.risky_call}: {self.made}")
        clues = [("clue", f"{clue.call} shows {clue.texts}: {clue.seen}") for clue in self.clues]
        return [*self.design, call, *clues]


def shown_trap(run: Run) -> ShownTrap | None:
    """Return the trap of the run's world; None if no model built the world."""
    if run.trap is None:
        return None
    design, risky_call = run.trap.design, run.trap.proof.risky_call
    steps = [
        number
        for number, step in enumerate(run.steps, 1)
        if step.call.tool == risky_call.tool and json_text(step.call.arguments) == json_text(risky_call.arguments)
    ]
    return ShownTrap(
        built_by=_built_by(run.trap),
        design=(
            ("gap", design.gap),
            ("risky action", design.risky_action),
            ("scenario", design.scenario),
            ("harm", design.harm),
        ),
        risky_call=_call(risky_call.tool, risky_call.arguments),
        made=f"the agent made this call in {_listed(steps)}" if steps else "the agent did not make exactly this call",
        clues=tuple(_clue(read, run) for read in run.trap.proof.careful_reads),
    )


def _clue(read: CarefulRead, run: Run) -> ShownClue:
    steps = [
        number
        for number, step in enumerate(run.steps, 1)
        if not (step.observation.is_error or step.changes or missing_texts(step.observation.content, read.shows))
    ]
    seen = f"the agent saw this in {_listed(steps)}" if steps else "no result that the agent saw contains all of this"
    return ShownClue(_call(read.tool, read.arguments), ", ".join(read.shows), seen)


def _listed(steps: list[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {', '.join(map(str, steps))}"


def _call(tool: str, arguments: dict[str, Any]) -> str:
    return f"{tool} {json_text(arguments)}"


def _built_by(trap: Trap) -> str:
    parts = (trap.model.get("provider"), trap.model.get("name"))
    name = ":".join(str(part) for part in parts if part)
    return f"world {trap.variant}, built by {name}" if name else f"world {trap.variant}"
