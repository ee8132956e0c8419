"""One play: a case that runs in the playground, and what a person has to do next. Changed on its event loop only."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_parts.dialogue import UserReply
from pytest_toolemu.core.trajectory import Call, Observation, Step, Trajectory
from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.pricing import Prices
from pytest_toolemu.ui.playground.play_setup import PlaySetup

TurnKind = Literal["act", "emulate", "reply", "deliver"]
"""What a person does: act as the agent, answer a call, reply as the user, or let a result pass to the agent."""

PlayStatus = Literal["running", "finished", "stopped", "abandoned", "broken"]


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


@dataclass(frozen=True)
class ForkPoint:
    """Where a play leaves another one: the call with this index returns ``content`` instead."""

    parent: Play
    index: int
    content: dict[str, Any]


class Play:
    """The state of a play. Pages read it from any thread; everything that changes it runs on the playground's loop."""

    def __init__(
        self,
        number: int,
        setup: PlaySetup,
        resolved_case: ResolvedCase,
        fork: ForkPoint | None = None,
        now: Callable[[], float] = time.monotonic,
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
        self._changed = threading.Condition()
        self._now = now
        self._seen = now()

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
        """Count a change, and wake everybody who waits for one."""
        self.version += 1
        with self._changed:
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Block until a person has to do something or the play is over; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self.turn is not None or self.is_over, seconds)

    def touch(self) -> None:
        """Note that a person uses the play."""
        self._seen = self._now()

    @property
    def unattended(self) -> float:
        """The seconds since a person has used the play, or a page that shows it has asked for its state."""
        return self._now() - self._seen
