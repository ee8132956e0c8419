"""Wrappers that show a person what the agent and the emulator do, and hold results back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.toolbox import Agent, Task, Toolbox
from pytest_toolemu.core.trajectory import Call, Observation, Trajectory
from pytest_toolemu.emulators.wrapper_emulator import WrapperEmulator
from pytest_toolemu.ui.playground.play import Play


@dataclass(frozen=True)
class WatchedAgent:
    """Shows the trajectory of an agent from its beginning."""

    agent: Agent
    play: Play

    @property
    def identity(self) -> dict[str, Any]:
        """The identity of the agent."""
        return identity_of(self.agent)

    async def __call__(self, task: Task, toolbox: Toolbox) -> str:
        """Return the answer of the agent."""
        self.play.trajectory = toolbox.trajectory
        self.play.notify()
        return await self.agent(task, toolbox)


@dataclass(frozen=True)
class WatchedEmulator(WrapperEmulator):
    """Shows each call while it is answered. If the play stops at each result, a person lets the result pass."""

    play: Play

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the observation of the emulator."""
        self.play.call = call
        self.play.notify()
        try:
            observation = await self.next(call, trajectory)
            if self.play.is_stepping and call.index >= self.play.replayed:
                await self.play.ask("deliver", call, observation)
        finally:
            self.play.call = None
        # The toolbox appends the step as soon as this returns.
        asyncio.get_running_loop().call_soon(self.play.notify)
        return observation
