"""A person as the agent, as the emulator, and as the user of a case."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal

from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.messages import Ledger, Message, Model, ModelRequest, Reply, Role
from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolbox import Agent, Emulator, Task, Toolbox
from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.trajectory import Call, Observation, Step, Trajectory, UserReply
from pytest_toolemu.core.world.state_changes import StateChange, StateEdit
from pytest_toolemu.core.world.world import World
from pytest_toolemu.emulators.layers import WrapperEmulator
from pytest_toolemu.errors import InconclusiveError, WorldError
from pytest_toolemu.ui.play import PERSON, AnswerMove, CallMove, ForkPoint, Move, Play, SayMove


@dataclass(frozen=True)
class PersonAgent:
    """Does what a person decides. In a fork, it first repeats what the person did before."""

    play: Play

    @property
    def identity(self) -> dict[str, Any]:
        """The kind only: records do not name people."""
        return {"kind": PERSON}

    async def __call__(self, _: Task, toolbox: Toolbox) -> str:
        """Return the person's answer."""
        earlier = _earlier_moves(self.play.fork)
        while True:
            move: Move = earlier.pop(0) if earlier else await self.play.ask("act")
            self.play.moves.append(move)
            match move:
                case CallMove():
                    await toolbox.call(move.name, move.arguments)
                case SayMove():
                    if await toolbox.say(move.text) is None:
                        return move.text
                case AnswerMove():
                    if move.is_quit:
                        toolbox.quit(move.text)
                    return move.text


@dataclass(frozen=True)
class PersonEmulator:
    """Asks a person for each result, and suggests what ``next`` answers. An unchanged suggestion keeps its source."""

    next: Emulator
    play: Play

    @property
    def identity(self) -> dict[str, Any]:
        """The kind only; what the person was suggested is no part of it."""
        return {"kind": PERSON}

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the suggestion, or the result that the person wrote. An error of the person changes no rows."""
        try:
            suggestion = await self.next(call, trajectory)
        except InconclusiveError as error:
            suggestion = None
            self.play.notes.append(f"Call {call.index + 1}: no result can be suggested: {error}")
        content = await self.play.ask("emulate", call, suggestion)
        if suggestion is not None and content == suggestion.content:
            return suggestion
        observation = Observation(content=content, source=PERSON)
        if observation.is_error:
            take_back(trajectory.world)
        return observation


@dataclass(frozen=True)
class PersonUser:
    """Asks a person for each reply to the agent. In a fork, it first repeats earlier replies."""

    play: Play

    @property
    def identity(self) -> dict[str, Any]:
        """The kind only: records do not name people."""
        return {"kind": PERSON}

    async def __call__(self, _: Trajectory) -> UserReply:
        """Return the reply."""
        earlier, number = _earlier_replies(self.play.fork), len(self.play.replies)
        reply: UserReply = earlier[number] if number < len(earlier) else await self.play.ask("reply")
        self.play.replies.append(reply)
        return reply


def result_problems(tool: Tool, content: Any) -> list[str]:
    """Return why a tool cannot return this: it is neither a result that its schema allows nor an error it declares."""
    if not isinstance(content, dict):
        return ["a result is a JSON object"]
    if (
        set(content) == {"error"}
        and isinstance(content["error"], str)
        and "error" not in tool.returns.get("properties", {})
    ):
        name = content["error"].partition(":")[0].strip()
        declared = ", ".join(tool.errors) or "none"
        return [] if name in tool.errors else [f"{tool.name} declares no error {name!r}; declared: {declared}"]
    return tool.result_schema.violations(content)


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


_EDITS: Final[Mapping[str, Literal["add", "change", "remove"]]] = {
    "added": "add", "changed": "change", "removed": "remove",
}  # fmt: skip
_OPPOSITES: Final = {"added": "removed", "changed": "changed", "removed": "added"}


def take_back(world: World | None) -> None:
    """Undo what the call that is being answered has changed."""
    if world is not None and (changes := world.take_changes()):
        undone = (
            change.model_copy(
                update={"change": _OPPOSITES[change.change], "before": change.after, "after": change.before}
            )
            for change in reversed(changes)
        )
        _edit(world, undone)
        world.take_changes()


def repeat(world: World | None, changes: Iterable[StateChange]) -> None:
    """Change the rows as a call of an earlier run did. Raise WorldError if they do not fit."""
    if world is not None:
        _edit(world, changes)


def _edit(world: World, changes: Iterable[StateChange]) -> None:
    for kit, of_kit in groupby(changes, lambda change: change.entity.partition(".")[0]):
        if problems := world.edit(kit, list(map(_edit_of, of_kit))):
            raise WorldError(f"the rows of {kit} cannot be changed as in the other play: {'; '.join(problems)}")


def _edit_of(change: StateChange) -> StateEdit:
    # An edit sets fields without a value to null.
    cleared = dict.fromkeys({**change.before, **change.after}) if change.change == "changed" else {}
    entity, kind = change.entity.partition(".")[2], _EDITS[change.change]
    return StateEdit(change=kind, entity=entity, key=str(change.key), values={**cleared, **change.after})


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


def _earlier_moves(point: ForkPoint | None) -> list[Move]:
    """Return what the person did as the agent, up to the call with the changed result."""
    moves: list[Move] = []
    calls = 0
    for move in point.parent.moves if point is not None else ():
        if point is not None and calls > point.index:
            break
        moves.append(move)
        calls += isinstance(move, CallMove)
    return moves


def _earlier_replies(point: ForkPoint | None) -> list[UserReply]:
    """Return what the person replied as the user, before the call with the changed result."""
    if point is None or point.parent.trajectory is None:
        return []
    said = point.parent.trajectory.dialogue
    return point.parent.replies[: sum(one.by == "user" and one.step <= point.index for one in said)]


def earlier_steps(point: ForkPoint) -> tuple[Step, ...]:
    """Return the steps up to the changed one, which may still be held back."""
    turn, steps = point.parent.turn, point.parent.steps
    if turn is not None and turn.kind == "deliver" and turn.call is not None and turn.observation is not None:
        steps = (*steps, Step(call=turn.call, observation=turn.observation))
    return steps[: point.index + 1]


def _request_key(role: Role, model: dict[str, Any], messages: Sequence[Message]) -> str:
    return sha256([role, model, [message.model_dump(mode="json") for message in messages]])
