"""What a person asks for when a play begins: the case, who plays which part, and how it is judged."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.messages import ModelCall, Role, Usage
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.trajectory import Call, Observation, Step, Trajectory, UserReply
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.credentials import REGISTRY
from pytest_toolemu.formats.usd import sum_text
from pytest_toolemu.models.pricing import Cost, Prices, costs_of
from pytest_toolemu.settings import OFFLINE, Settings, resolve
from pytest_toolemu.settings.resolution import load_env

PERSON: Final = "person"
"""The name of a person in the form of a play, and the kind of one in records."""

MAX_TURNS: Final = 20
_LONGEST_NAME: Final = 500


class SetupError(UsageError):
    """One field of the form of a new play is not valid."""

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
                raise SetupError(name, f"{name}: write at most {_LONGEST_NAME} characters of text")
        turns = content.get("turns", 1)
        if not isinstance(turns, int) or not 1 <= turns <= MAX_TURNS:
            raise SetupError("turns", f"turns: {turns!r} is not a number from 1 to {MAX_TURNS}")
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

    @property
    def has_person(self) -> bool:
        """Whether a person plays a part."""
        return PERSON in (self.agent, self.emulator, self.user)

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
        self,
        number: int,
        setup: PlaySetup,
        resolved_case: ResolvedCase,
        fork: ForkPoint | None = None,
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
