"""A fork: a run that repeats the calls of another one up to a changed result, and then goes on by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core.messages import Ledger, Message, Model, ModelRequest, Reply, Role
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.run_parts.dialogue import UserReply
from pytest_toolemu.core.toolbox import Emulator
from pytest_toolemu.core.trajectory import Call, Observation, Step, Trajectory
from pytest_toolemu.emulators.wrapper_emulator import WrapperEmulator
from pytest_toolemu.ui.playground.play import CallMove, ForkPoint, Move, Play
from pytest_toolemu.ui.playground.row_edits import repeat

_REPEATED: Final[tuple[Role, ...]] = ("agent", "user")
_COMPUTED: Final = ("rows", "pinned", "remembered", "offline", "rejected")
"""Sources that give the same answer again without a model, and change the same rows."""


@dataclass(frozen=True)
class ForkedEmulator(WrapperEmulator):
    """Answers the first calls as they were answered in the play that was left, the last of them with the new result.

    The rows change as they did. If the agent makes another call than before, everything from there on is new.
    ``repeating`` computes earlier results again, without asking a person.
    """

    repeating: Emulator
    play: Play
    point: ForkPoint
    earlier: Sequence[Step]

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the earlier observation, the changed one, or that of the emulator."""
        if call.index > self.point.index or self.play.has_left_path:
            return await self.next(call, trajectory)
        step = self.earlier[call.index]
        if (step.call.name, step.call.text) != (call.name, call.text):
            self.play.has_left_path = True
            self.play.notes.append(
                f"Call {call.index + 1} differs from the one in play {self.point.parent.id}, so the changed result is "
                "not used, and this call and all later ones are answered anew"
            )
            return await self.next(call, trajectory)
        if call.index < self.point.index:
            return await self._repeated(step, call, trajectory)
        changed = Observation(content=self.point.content, source="person")
        if not changed.is_error:  # a call that fails changes nothing
            await self._repeated(step, call, trajectory)
        return changed

    async def _repeated(self, step: Step, call: Call, trajectory: Trajectory) -> Observation:
        if step.observation.source in _COMPUTED:
            return await self.repeating(call, trajectory)
        repeat(trajectory.world, step.changes)
        return step.observation


class RepeatedReplies:
    """Gives the models of agent and user their earlier replies to equal requests, so that a fork begins equally."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self._name = name
        self._replies: dict[str, deque[Reply]] = {}
        for call in ledger.model_calls:
            if call.role in _REPEATED and call.reply is not None:
                messages = [ledger.messages[index] for index in call.messages]
                self._replies.setdefault(_request_key(call.role, call.model, messages), deque()).append(call.reply)

    async def complete(self, role: Role, model: Model, request: ModelRequest) -> tuple[Reply, str]:
        """Return the earlier reply to an equal request, or ask the model."""
        replies = self._replies.get(_request_key(role, model.identity, request.messages))
        if replies:
            return replies.popleft(), self._name
        return await model.complete(request), ""


def earlier_moves(point: ForkPoint) -> tuple[Move, ...]:
    """Return what the person did as the agent, up to the call with the changed result."""
    moves: list[Move] = []
    calls = 0
    for move in point.parent.moves:
        if calls > point.index:
            break
        moves.append(move)
        calls += isinstance(move, CallMove)
    return tuple(moves)


def earlier_replies(point: ForkPoint) -> tuple[UserReply, ...]:
    """Return what the person replied as the user, before the call with the changed result."""
    trajectory = point.parent.trajectory
    said = trajectory.dialogue if trajectory is not None else []
    return tuple(point.parent.replies[: sum(one.by == "user" and one.step <= point.index for one in said)])


def earlier_steps(point: ForkPoint) -> tuple[Step, ...]:
    """Return the steps up to the changed one, which may still be held back."""
    turn, steps = point.parent.turn, point.parent.steps
    if turn is not None and turn.kind == "deliver" and turn.call is not None and turn.observation is not None:
        steps = (*steps, Step(call=turn.call, observation=turn.observation))
    return steps[: point.index + 1]


def _request_key(role: Role, model: dict[str, Any], messages: Sequence[Message]) -> str:
    return sha256([role, model, [message.model_dump(mode="json") for message in messages]])
