"""Answer with what a case has fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_toolemu.core.case import Pin
from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.toolbox import Emulator
from pytest_toolemu.core.trajectory import Call, Observation, Trajectory, failure


@dataclass(frozen=True)
class PinnedEmulator:
    """Answers by the first pin of the case that matches the call; passes every other call on."""

    next: Emulator

    @property
    def identity(self) -> dict[str, Any]:
        """That of the emulator inside: the pins belong to the case."""
        return identity_of(self.next)

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """The pin's result or error, or the answer of the emulator inside."""
        for pin in trajectory.resolved_case.case.pins:
            if _fits(pin, call, trajectory) and (pin.nth is None or pin.nth == 1 + _times(pin, trajectory)):
                return _answer(pin)
        return await self.next(call, trajectory)


def _fits(pin: Pin, call: Call, trajectory: Trajectory) -> bool:
    return call.tool is not None and trajectory.resolved_case.matches(pin, call.tool, call.arguments)


def _times(pin: Pin, trajectory: Trajectory) -> int:
    """How many calls that the pin fits were made before."""
    return sum(_fits(pin, step.call, trajectory) for step in trajectory.steps)


def _answer(pin: Pin) -> Observation:
    if pin.error is not None:
        return failure(pin.error, "pinned")
    return Observation(content=pin.returns or {}, source="pinned")
