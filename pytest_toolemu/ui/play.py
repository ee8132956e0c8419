"""One play of a case: its setup, its state, its costs, and those who take part: people, agents, and emulators."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.messages import Ledger, Message, Model, ModelCall, ModelRequest, Reply, Role, Usage
from pytest_toolemu.core.run import Call, Observation, Run, Step, Trajectory, UserReply, sha256
from pytest_toolemu.core.toolbox import Agent, Emulator, Task, Toolbox
from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.world.state_changes import StateChange, StateEdit
from pytest_toolemu.core.world.world import World
from pytest_toolemu.emulators.layers import WrapperEmulator
from pytest_toolemu.errors import InconclusiveError, UsageError, WorldError
from pytest_toolemu.formats.redaction import REGISTRY
from pytest_toolemu.formats.text import counted, sum_text
from pytest_toolemu.models.pricing import Cost, Prices, costs_of
from pytest_toolemu.settings.model_names import OFFLINE
from pytest_toolemu.settings.option_table import Settings
from pytest_toolemu.settings.resolution import load_env, resolve

PERSON: Final = "person"
"""The name of a person in the form of a play, and the kind of one in records."""

MAX_TURNS: Final = 20
_LONGEST_NAME: Final = 500


class FormError(UsageError):
    """One field of a form is not valid."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class PlaySetup:
    """The form of a new play. ``agent``, ``emulator``, and ``user`` are ``person`` or named as in options.

    ``stops``: each result waits until a person lets it pass. ``turns`` is the number of messages that the agent may
    write to the user.
    """

    case_id: str
    text: str
    agent: str = PERSON
    emulator: str = OFFLINE
    user: str = OFFLINE
    evaluators: tuple[str, ...] = ()
    turns: int = 1
    stops: bool = False

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> PlaySetup:
        """Read the form as the page sends it. Raise UsageError for a field that is not valid."""
        texts = {name: content.get(name, "") for name in ("case_id", "text", "agent", "emulator", "user", "evaluators")}
        for name, value in texts.items():
            if not isinstance(value, str) or (name != "text" and len(value) > _LONGEST_NAME):
                raise FormError(name, f"{name}: write at most {_LONGEST_NAME} characters of text")
        turns = content.get("turns", 1)
        if not isinstance(turns, int) or not 1 <= turns <= MAX_TURNS:
            raise FormError("turns", f"turns: {turns!r} is not a number from 1 to {MAX_TURNS}")
        return cls(
            texts["case_id"].strip(),
            texts["text"].replace("\r\n", "\n"),
            texts["agent"].strip() or PERSON,
            texts["emulator"].strip() or OFFLINE,
            texts["user"].strip() or OFFLINE,
            tuple(name.strip() for name in texts["evaluators"].split(",") if name.strip()),
            turns,
            content.get("stops") is True,
        )

    def settings(self) -> Settings:
        """Return the settings: those of the form, then ``TOOLEMU_*`` variables, then the defaults. Raise UsageError."""
        load_env(Path(".env"))
        REGISTRY.remember()
        options: dict[str, Any] = {
            "toolemu_agent": [] if self.agent == PERSON else [self.agent],
            "toolemu_emulator": OFFLINE if self.emulator == PERSON else self.emulator,
            "toolemu_user": OFFLINE if self.user == PERSON else self.user,
            "toolemu_evaluator": list(self.evaluators) or None,
            "toolemu_turns": str(self.turns),
        }
        return resolve(options.get, lambda _: None, os.environ)


TurnKind = Literal["act", "emulate", "reply", "deliver"]
"""What a person does: act as the agent, answer a call, reply as the user, or let a result pass to the agent."""

PlayStatus = Literal["running", "finished", "stopped", "broken"]


@dataclass(frozen=True)
class CallMove:
    """The person calls a tool."""

    name: str
    arguments: Any


@dataclass(frozen=True)
class SayMove:
    """The person says something to the user, and may get a reply."""

    text: str


@dataclass(frozen=True)
class AnswerMove:
    """The person gives the final answer; ``is_quit``: gives up instead, for the reason in ``text``."""

    text: str
    is_quit: bool = False


Move = CallMove | SayMove | AnswerMove


@dataclass(frozen=True)
class PlayTurn:
    """What a person has to do. ``observation`` is the suggested result of ``call``, or the one that is held back."""

    number: int
    kind: TurnKind
    call: Call | None = None
    observation: Observation | None = None


class TurnOverError(UsageError):
    """A person answered something that was answered before, for example in another window."""


class Play:
    """The state of a play. Pages read it from any thread; everything that changes it runs on the playground's loop."""

    def __init__(
        self, number: int, setup: PlaySetup, resolved_case: ResolvedCase, fork: ForkPoint | None = None
    ) -> None:
        self.id = str(number)
        self.setup = setup
        self.resolved_case = resolved_case
        self.fork = fork
        self.status: PlayStatus = "running"
        self.turn: PlayTurn | None = None
        self.call: Call | None = None
        self.trajectory: Trajectory | None = None
        self.moves: list[Move] = []
        self.replies: list[UserReply] = []
        self.notes: list[str] = []
        self.is_stepping = setup.stops
        self.has_left_path = False
        self.run: Run | None = None
        self.record: Path | None = None
        self.problem = ""
        self.prices: Prices | None = None
        self.version = 0
        self._turns = 0
        self._answer: asyncio.Future[Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.status != "running"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The calls that were answered so far."""
        return tuple(self.trajectory.steps) if self.trajectory is not None else ()

    @property
    def replayed(self) -> int:
        """The number of first calls that a fork repeats from its parent."""
        return self.fork.index + 1 if self.fork is not None and not self.has_left_path else 0

    async def ask(self, kind: TurnKind, call: Call | None = None, observation: Observation | None = None) -> Any:
        """Wait until a person has done something, and return it."""
        self._turns += 1
        self._answer = asyncio.get_running_loop().create_future()
        self.turn = PlayTurn(self._turns, kind, call, observation)
        self.notify()
        try:
            return await self._answer
        finally:
            self.turn = None
            self.notify()

    def resolve(self, number: int, value: Any = None) -> None:
        """Give what a person has done to the turn of this number. Raise TurnOverError if it is over."""
        if self.turn is None or self.turn.number != number or self._answer is None or self._answer.done():
            raise TurnOverError("this was answered already; the page shows what comes next")
        self.turn = None
        self._answer.set_result(value)

    def finish(self, status: PlayStatus, problem: str = "") -> None:
        """End the play."""
        self.status, self.problem, self.turn, self.call = status, problem, None, None
        self.notify()

    def notify(self) -> None:
        """Count a change, so that pages update themselves."""
        self.version += 1


@dataclass(frozen=True)
class ForkPoint:
    """Where a play leaves another one: the call with this index returns ``content`` instead."""

    parent: Play
    index: int
    content: dict[str, Any]


def play_costs(play: Play) -> dict[Role, str]:
    """Return what each role that asked a model so far has cost, in the order of their first requests."""
    calls = _calls(play)
    roles = dict.fromkeys(call.role for call in calls)
    return {role: _cost_text(play, [call for call in calls if call.role == role]) for role in roles}


def play_cost(play: Play) -> str:
    """Return what a play has cost so far; empty if it has asked no model."""
    calls = _calls(play)
    return _cost_text(play, calls) if calls else ""


def _calls(play: Play) -> list[ModelCall]:
    return list(play.trajectory.ledger.model_calls) if play.trajectory is not None else []


def _cost_text(play: Play, calls: Sequence[ModelCall]) -> str:
    """Return text such as ``3 requests, 1,204 tokens, 0.0031 USD``. Replies of an earlier play cost nothing."""
    paid = [call for call in calls if not call.replayed]
    usage = sum((call.reply.usage_of_attempts if call.reply else Usage(calls=1, unknown=1) for call in paid), Usage())
    usd = sum(costs_of(paid, play.prices).values() if play.prices is not None else (), Cost()).text
    tokens = sum_text(f"{usage.total:,}", nothing_known=usage.unknown == len(paid), incomplete=usage.unknown > 0)
    texts = [
        counted(len(paid), "request"),
        f"{tokens} tokens" if tokens != "unknown" else "tokens unknown",
        f"{usd} USD" if usd != "unknown" else "cost unknown",
    ]
    repeated = [f"{counted(count, 'repeated request')} at no cost"] if (count := len(calls) - len(paid)) else []
    return ", ".join([*texts, *repeated] if paid else repeated)


class Person:
    """A part that a person plays."""

    @property
    def identity(self) -> dict[str, Any]:
        """The kind only: records do not name people, or what they were suggested."""
        return {"kind": PERSON}


@dataclass(frozen=True)
class PersonAgent(Person):
    """Does what a person decides. In a fork, it first repeats what the person did before."""

    play: Play

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
class PersonEmulator(Person):
    """Asks a person for each result, and suggests what ``next`` answers. An unchanged suggestion keeps its source."""

    next: Emulator
    play: Play

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
class PersonUser(Person):
    """Asks a person for each reply to the agent. In a fork, it first repeats earlier replies."""

    play: Play

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
        repeat(world, undone)
        world.take_changes()


def repeat(world: World, changes: Iterable[StateChange]) -> None:
    """Change the rows as a call of an earlier run did. Raise WorldError if they do not fit."""
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
        if trajectory.world is not None:
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
