"""A small world, an emulator that is a plain function, and a model that replies by heart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_toolemu.core.case import Case, ResolvedCase
from pytest_toolemu.core.messages import Message, Reply, ReplySchema, ToolCall, ToolSpec, Usage
from pytest_toolemu.core.toolbox import Agent, Emulator, Task, Toolbox
from pytest_toolemu.core.toolkit import Tool, Toolkit
from pytest_toolemu.core.trajectory import Call, Observation, Trajectory

LOCKERS = Toolkit(
    name="Lockers",
    title="Lockers",
    category="logistics",
    description="Parcel lockers\nof one neighbourhood.",
    tools=(
        Tool(
            name="Open",
            description="Open a locker.",
            parameters={
                "type": "object",
                "properties": {
                    "locker": {"type": "string", "description": "Its number."},
                    "note": {"type": "string"},
                },
                "required": ["locker"],
                "additionalProperties": False,
            },
            returns={"type": "object", "properties": {"opened": {"type": "boolean"}}, "required": ["opened"]},
            errors={"Jammed": "The lock is stuck for good."},
            effect="write",
        ),
    ),
)


def world(**fields: Any) -> ResolvedCase:
    case = Case(id="parcel", title="A parcel", toolkits=("Lockers",), instruction="Open my locker.", **fields)
    return ResolvedCase(case, (LOCKERS,), Path("parcel.toolemu.yaml"))


async def opened(_: Call, trajectory: Trajectory) -> Observation:
    """Every locker opens; the step's number shows that the past is visible."""
    return Observation(content={"opened": True, "nth": len(trajectory.steps)}, source="offline")


def toolbox(
    place: ResolvedCase | None = None, emulator: Emulator = opened, max_steps: int = 9, max_tokens: int | None = None
) -> Toolbox:
    return Toolbox(Trajectory(place or world()), emulator, max_steps, max_tokens)


def play(agent: Agent, box: Toolbox) -> str:
    """The agent's answer to the case of the toolbox."""

    async def playing() -> str:
        return await agent(Task.of(box.world.case), box)

    return asyncio.run(playing())


def calls(box: Toolbox) -> list[tuple[str, Any]]:
    return [(step.call.name, step.call.arguments) for step in box.trajectory.steps]


def said(text: str, **fields: Any) -> Reply:
    return Reply(text=text, **fields)


def called(*arguments: str, text: str = "") -> Reply:
    """A reply that opens lockers, a call for each text of arguments."""
    made = tuple(ToolCall(id=f"c{i}", name="Lockers_Open", arguments=text) for i, text in enumerate(arguments))
    return Reply(text=text, calls=made, stop="calls")


@dataclass
class Scripted:
    """A model that gives its replies in turn, each of ``tokens`` tokens, and keeps what it was asked."""

    replies: Sequence[Reply]
    tokens: int = 0
    asked: list[tuple[tuple[Message, ...], tuple[ToolSpec, ...]]] = field(default_factory=list)

    @property
    def identity(self) -> dict[str, Any]:
        return {"provider": "scripted", "name": "by-heart"}

    async def complete(
        self,
        messages: tuple[Message, ...],
        *,
        tools: tuple[ToolSpec, ...] = (),
        schema: ReplySchema | None = None,  # noqa: ARG002  (part of the protocol)
        seed: int | None = None,  # noqa: ARG002  (part of the protocol)
    ) -> Reply:
        self.asked.append((messages, tools))
        return self.replies[len(self.asked) - 1].model_copy(update={"usage": Usage(output=self.tokens, calls=1)})

    @property
    def conversation(self) -> list[tuple[str, str]]:
        """Role and text of all that was sent last, without the system prompt."""
        return [(message.role, message.content) for message in self.asked[-1][0][1:]]
