"""The cost estimate of conversations contains the user's model, and the agent's further requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_toolemu.agents.model_agents import ToolCallingAgent
from pytest_toolemu.analysis.cost_estimate import CostEstimate, estimate_runs
from pytest_toolemu.core.toolbox import SimulatedUser
from pytest_toolemu.emulators.users import ModelUser, OfflineUser
from tests.dialogue.landlady import rent, spec
from tests.scripted_model import ScriptedModel


def estimate(folder: Path, turns: int, user: SimulatedUser) -> CostEstimate:
    run = spec(rent(folder), ToolCallingAgent(ScriptedModel()), turns, user)
    return estimate_runs([replace(run, limits=replace(run.limits, max_steps=2))])


def requests(result: CostEstimate, role: str) -> tuple[int, int, int]:
    line = next(line for (who, _), line in result.lines.items() if who == role)
    return line.least["calls"], line.expected["calls"], line.most["calls"]


def test_the_users_model_is_in_the_estimate(tmp_path: Path) -> None:
    result = estimate(tmp_path, 4, ModelUser(ScriptedModel(provider="other")))
    assert ("user", "other:scripted") in result.lines
    assert requests(result, "user") == (1, 2, 3)
    assert requests(result, "agent") == (1, 4, 6)
    assert "2 tool calls and 1 message of the user per run; range: from no call to 2 calls and at most 3" in next(
        iter(result.basis)
    )


def test_an_offline_user_costs_only_the_agents_requests(tmp_path: Path) -> None:
    several, one = estimate(tmp_path, 3, OfflineUser()), estimate(tmp_path, 1, OfflineUser())
    assert {role for role, _ in several.lines} == {"agent"}
    assert requests(one, "agent") == (1, 3, 3)
    assert requests(several, "agent") == (1, 4, 5)
    assert "user" not in next(iter(one.basis))
