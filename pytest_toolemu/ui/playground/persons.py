"""A person as the agent, as the emulator, and as the user of a case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_toolemu.core.run_parts.dialogue import UserReply
from pytest_toolemu.core.toolbox import Emulator, Task, Toolbox
from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.trajectory import Call, Observation, Trajectory
from pytest_toolemu.errors import InconclusiveError
from pytest_toolemu.ui.playground.play import AnswerMove, CallMove, Move, Play, SayMove
from pytest_toolemu.ui.playground.play_setup import PERSON
from pytest_toolemu.ui.playground.row_edits import take_back


@dataclass(frozen=True)
class PersonAgent:
    """Does what a person decides. In a fork, it first repeats what the person did before."""

    play: Play
    earlier: Sequence[Move] = ()

    @property
    def identity(self) -> dict[str, Any]:
        """The kind only: records do not name people."""
        return {"kind": PERSON}

    async def __call__(self, _: Task, toolbox: Toolbox) -> str:
        """Return the person's answer."""
        earlier = list(self.earlier)
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
    earlier: Sequence[UserReply] = ()

    @property
    def identity(self) -> dict[str, Any]:
        """The kind only: records do not name people."""
        return {"kind": PERSON}

    async def __call__(self, _: Trajectory) -> UserReply:
        """Return the reply."""
        number = len(self.play.replies)
        reply: UserReply = self.earlier[number] if number < len(self.earlier) else await self.play.ask("reply")
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
