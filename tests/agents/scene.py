"""A small case, and an emulator that is a plain function."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pytest_toolemu.core.case import Case, ResolvedCase
from pytest_toolemu.core.messages import Reply, ToolCall
from pytest_toolemu.core.run import Call, Observation, Trajectory
from pytest_toolemu.core.toolbox import Agent, Emulator, Task, Toolbox
from pytest_toolemu.core.toolkit import Tool, Toolkit
from tests.scripted_model import ScriptedModel

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


def resolved_case(**fields: Any) -> ResolvedCase:
    case = Case(id="parcel", title="A parcel", toolkits=("Lockers",), instruction="Open my locker.", **fields)
    return ResolvedCase(case, (LOCKERS,), Path("parcel.toolemu.yaml"))


async def opened(_: Call, trajectory: Trajectory) -> Observation:
    """Open every locker; the number of the step shows that the emulator sees earlier steps."""
    return Observation(content={"opened": True, "nth": len(trajectory.steps)}, source="offline")


def toolbox(
    place: ResolvedCase | None = None, emulator: Emulator = opened, max_steps: int = 9, max_tokens: int | None = None
) -> Toolbox:
    return Toolbox(Trajectory(place or resolved_case()), emulator, max_steps, max_tokens)


def play(agent: Agent, box: Toolbox) -> str:
    """Return the agent's answer to the case of the toolbox."""

    async def playing() -> str:
        return await agent(Task.of(box.resolved_case.case), box)

    return asyncio.run(playing())


def calls(box: Toolbox) -> list[tuple[str, Any]]:
    return [(step.call.name, step.call.arguments) for step in box.trajectory.steps]


def text_reply(text: str, **fields: Any) -> Reply:
    return Reply(text=text, **fields)


def reply_with_calls(*arguments: str, text: str = "") -> Reply:
    """Return a reply that opens lockers, with a call for each text of arguments."""
    calls = tuple(ToolCall(id=f"c{i}", name="Lockers_Open", arguments=text) for i, text in enumerate(arguments))
    return Reply(text=text, calls=calls, stop="calls")


def conversation(model: ScriptedModel) -> list[tuple[str, str]]:
    """Return role and text of the messages of the last request, without the system prompt."""
    return [(message.role, message.content) for message in model.conversations[-1][1:]]
