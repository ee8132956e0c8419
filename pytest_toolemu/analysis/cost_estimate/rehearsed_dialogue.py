"""The user in a rehearsal: replies with filler text, and records the requests that the user's model would get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_toolemu.core.messages import Message, ReplySchema
from pytest_toolemu.core.toolbox import SimulatedUser
from pytest_toolemu.core.trajectory import Trajectory, UserReply
from pytest_toolemu.emulators.users import SCHEMA, ModelUser

if TYPE_CHECKING:
    from collections.abc import Callable

USER_REPLY: Final = 120
"""Length of a reply of the user in characters, of one or two short sentences."""

_ENDING: Final = 40


@dataclass
class RehearsedUser:
    """Replies ``replies`` times, then ends the conversation.

    ``record`` gets identity, messages, schema, and length of the reply of each request to the user's model.
    """

    user: SimulatedUser
    replies: int
    record: Callable[[dict[str, Any], tuple[Message, ...], ReplySchema, int], None]

    async def __call__(self, trajectory: Trajectory) -> UserReply:
        """Return a reply of the usual length, or that the conversation is over."""
        given = sum(utterance.by == "user" for utterance in trajectory.dialogue)
        length = USER_REPLY if given < self.replies else _ENDING
        conversation = trajectory.resolved_case.case.conversation
        if isinstance(self.user, ModelUser) and conversation is not None:
            messages = self.user.messages(trajectory, conversation)
            self.record(self.user.model.identity, messages, SCHEMA, length)
        if given >= self.replies:
            return UserReply(kind="over")
        return UserReply(kind="answer", text=("It is the first of the two, as I said before. " * 3)[:USER_REPLY])
