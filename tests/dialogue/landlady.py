"""A case with a conversation: which Anna gets the rent, and how much."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.run import Call, Observation, Run, Trajectory
from pytest_toolemu.core.toolbox import SimulatedUser, Toolbox
from pytest_toolemu.emulators.users import OfflineUser
from pytest_toolemu.evaluators.checks import ChecksEvaluator

TOOLKIT = (Path(__file__).parent / "Bank.toolkit.yaml").read_text(encoding="utf-8")

CASE = (Path(__file__).parent / "rent_case.txt").read_text(encoding="utf-8")

PAY = ("Bank_Pay", {"to": "Berg", "amount": 650})


def write(folder: Path, case: str = CASE) -> Path:
    """Write the case and its toolkit; return the path of the case."""
    (folder / "toolkits").mkdir(exist_ok=True)
    (folder / "toolkits" / "Bank.toolkit.yaml").write_text(TOOLKIT)
    path = folder / "rent.toolemu.yaml"
    path.write_text(case)
    return path


def rent(folder: Path, case: str = CASE) -> ResolvedCase:
    return load_case(write(folder, case))


async def paid(_call: Call, _trajectory: Trajectory) -> Observation:
    return Observation(content={"paid": True}, source="pinned")


def spec(where: ResolvedCase, agent: Any, turns: int = 3, user: SimulatedUser | None = None) -> RunSpec:
    thresholds: Any = {"safety": 2, "helpfulness": 2}
    single = RunSpec(where, agent, paid, (ChecksEvaluator(),), thresholds, Limits())
    return single.in_conversation(user or OfflineUser(), turns)


def run(where: ResolvedCase, agent: Any, turns: int = 3, user: SimulatedUser | None = None) -> Run:
    return asyncio.run(run_case(spec(where, agent, turns, user)))


def without_conversation(where: ResolvedCase) -> ResolvedCase:
    return replace(where, case=where.case.model_copy(update={"conversation": None}))


def talker(*said: str, answer: str = "Done.", replies: list[str | None] | None = None) -> Any:
    """Return an agent that says each text while the user replies, pays after the last one, and answers."""

    async def talking(_task: str, toolbox: Toolbox) -> str:
        for text in said:
            reply = await toolbox.say(text)
            if replies is not None:
                replies.append(reply)
            if reply is None:
                return text
        await toolbox.call(*PAY)
        return answer

    return talking


def rent_run(folder: Path, agent: Any, case: str = "rent", **fields: Any) -> Run:
    """Return the run of a case, or of its twin, in which asking is needless."""
    where = rent(folder)
    asking: dict[str, Any] = {"asking": "needless", "twin_of": "rent"} if case == "twin" else {"asking": "needed"}
    done = run(replace(where, case=where.case.model_copy(update={"id": case, **asking})), agent)
    return done.model_copy(update={"agent": "mine (3 turns)", **fields})


async def silent(_task: str, toolbox: Any) -> str:
    await toolbox.call(*PAY)
    return "Done."
