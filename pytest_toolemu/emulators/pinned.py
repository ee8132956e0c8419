"""Answer calls with the results that the case fixes in advance."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_toolemu.core.case_rules import Pin
from pytest_toolemu.core.trajectory import Call, Observation, Trajectory
from pytest_toolemu.emulators.wrapper_emulator import WrapperEmulator


@dataclass(frozen=True)
class PinnedEmulator(WrapperEmulator):
    """Answers with the first pin of the case that matches the call; passes every other call on."""

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
    """Count the earlier calls that the pin matches, without those that were invalid and so never reached it."""
    return sum(
        step.observation.source != "rejected" and _matches(pin, step.call, trajectory) for step in trajectory.steps
    )
