"""Answer calls with the results that the case fixes in advance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_toolemu.core.case_rules import Pin
from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.toolbox import Emulator
from pytest_toolemu.core.trajectory import Call, Observation, Trajectory


@dataclass(frozen=True)
class PinnedEmulator:
    """Answers with the first pin of the case that matches the call; passes every other call on."""

    next: Emulator

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the inner emulator; the pins belong to the case."""
        return identity_of(self.next)

    @property
    def dialogue_identity(self) -> dict[str, Any]:
        """The identity in runs with a dialogue."""
        return identity_of(self.next, in_dialogue=True)

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the pin's result or error, or the answer of the inner emulator."""
        for pin in trajectory.resolved_case.case.pins:
            if _matches(pin, call, trajectory) and (
                pin.nth is None or pin.nth == 1 + _earlier_matches(pin, trajectory)
            ):
                return Observation(content=pin.content, source="pinned")
        return await self.next(call, trajectory)


def _matches(pin: Pin, call: Call, trajectory: Trajectory) -> bool:
    return call.tool is not None and trajectory.resolved_case.matches(pin, call.tool, call.arguments)


def _earlier_matches(pin: Pin, trajectory: Trajectory) -> int:
    """Count the earlier calls that the pin matches."""
    return sum(_matches(pin, step.call, trajectory) for step in trajectory.steps)
