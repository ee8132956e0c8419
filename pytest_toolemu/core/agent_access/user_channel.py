"""Passes what the agent says to the user, and the user's replies back to the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from pytest_toolemu.core.run_parts.dialogue import UserReply, Utterance
from pytest_toolemu.core.trajectory import Trajectory

# An agent that goes on talking after the end of the conversation must not fill the record.
_MAX_LAST_WORDS: Final = 100

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
        self._is_over = False
        self._last_words: dict[str, Utterance] = {}

    async def say(self, text: str) -> str | None:
        """Record what the agent says, and return the user's reply; None if the conversation is over."""
        dialogue = self._trajectory.dialogue
        said = Utterance(step=len(self._trajectory.steps), by="agent", text=text)
        if self._is_over:
            self._keep(said)
            await asyncio.sleep(0)  # an agent that ignores the end must not block the loop
            return None
        self._said += 1
        if self._user is None or self._said >= self._trajectory.turns:
            self._end(said)
            return None
        dialogue.append(said)
        reply = await self._user(self._trajectory)
        if reply.kind == "over":
            self._end(dialogue.pop())
            return None
        dialogue.append(Utterance(step=said.step, by="user", **reply.model_dump()))
        return reply.text

    def keep_last_words(self, answer: str) -> None:
        """Add what the agent said last to the dialogue if that is not its answer: the user has read it, too."""
        self._trajectory.dialogue.extend(said for text, said in self._last_words.items() if text != answer)

    def _end(self, said: Utterance) -> None:
        self._is_over = True
        self._keep(said)

    def _keep(self, said: Utterance) -> None:
        if len(self._last_words) < _MAX_LAST_WORDS:
            self._last_words.setdefault(said.text, said)
