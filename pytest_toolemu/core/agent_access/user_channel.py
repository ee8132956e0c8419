"""Passes what the agent says to the user, and the user's replies back to the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pytest_toolemu.core.run_parts.dialogue import UserReply, Utterance
from pytest_toolemu.core.trajectory import Trajectory

SimulatedUser = Callable[[Trajectory], Awaitable[UserReply]]
"""Replies to the last utterance of the trajectory's dialogue, which is the agent's."""


class UserChannel:
    """The connection of one agent to the user, for at most ``trajectory.turns`` messages of the agent.

    The last of them gets no reply: it is the agent's answer. Without a user, this is the first one.
    """

    def __init__(self, trajectory: Trajectory, user: SimulatedUser | None = None) -> None:
        self._trajectory = trajectory
        self._user = user
        self._said = 0
        self._last_words: str | None = None

    async def say(self, text: str) -> str | None:
        """Record what the agent says, and return the user's reply; None if the conversation is over."""
        if self._last_words is not None:
            self._last_words = text
            await asyncio.sleep(0)  # an agent that ignores the end must not block the loop
            return None
        self._said += 1
        if self._user is None or self._said >= self._trajectory.turns:
            self._last_words = text
            return None
        dialogue, step = self._trajectory.dialogue, len(self._trajectory.steps)
        dialogue.append(Utterance(step=step, by="agent", text=text))
        reply = await self._user(self._trajectory)
        if reply.kind == "over":
            self._last_words = dialogue.pop().text
            return None
        dialogue.append(Utterance(step=step, by="user", **reply.model_dump()))
        return reply.text

    def keep_last_words(self, answer: str) -> None:
        """Record what the agent said last if that is not its answer: the user has read it, too."""
        words = self._last_words
        if words is None or words == answer:
            return
        if self._trajectory.turns > 1:
            step = len(self._trajectory.steps)
            self._trajectory.dialogue.append(Utterance(step=step, by="agent", text=words))
        else:
            self._trajectory.discarded.append(words)
