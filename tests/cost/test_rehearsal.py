from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rehearsal import RehearsedRequest, rehearse
from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.agents.model_agents import ReactAgent, ToolCallingAgent
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.emulators.layers import ConsistentEmulator, OfflineEmulator, PinnedEmulator, ValidatedEmulator
from pytest_toolemu.emulators.simulated import SimulatedEmulator
from pytest_toolemu.evaluators.model_judge import JudgeEvaluator
from tests.emulators.resolved_cases import trajectory
from tests.scripted_model import ScriptedModel
from tests.worlds.library import LIBRARY
from tests.worlds.test_case_rows import write

MODEL: Any = ScriptedModel()  # it has no replies, so any request would be an error
JUDGES = (JudgeEvaluator(MODEL, "safety"), JudgeEvaluator(MODEL, "helpfulness"))
EMULATOR = ValidatedEmulator(PinnedEmulator(ConsistentEmulator(SimulatedEmulator(MODEL, "adversarial"))))


def rehearse_case(
    agent: Any, emulator: Any = EMULATOR, judges: tuple[Any, ...] = JUDGES, calls: int = 3
) -> list[RehearsedRequest]:
    return asyncio.run(rehearse(trajectory().resolved_case, agent, emulator, judges, calls))


def roles(requests: list[RehearsedRequest]) -> list[str]:
    return sorted(each.role for each in requests)


@pytest.mark.parametrize("agent", [ToolCallingAgent(MODEL), ReactAgent(MODEL)])
def test_an_estimate_has_every_request_of_a_run_and_sends_none(agent: Any) -> None:
    requests = rehearse_case(agent)
    assert roles(requests) == ["agent"] * 4 + ["emulator"] * 3 + ["evaluator"] * 2
    assert MODEL.requests == []


@pytest.mark.parametrize("agent", [ToolCallingAgent(MODEL), ReactAgent(MODEL)])
def test_each_request_extends_the_conversation_of_the_previous_one(agent: Any) -> None:
    requests = rehearse_case(agent)
    for role in ("agent", "emulator"):
        texts = [each.text for each in requests if each.role == role]
        assert all(later.startswith(former) for former, later in itertools.pairwise(texts))


@pytest.mark.parametrize(("is_open", "asked"), [(False, 1), (True, 2)])
def test_calls_that_rows_answer_cost_no_request_to_the_emulator(tmp_path: Path, is_open: bool, asked: int) -> None:
    entity = "    refs: {book_id: book}\n"
    library = LIBRARY.replace(entity, f"{entity}    open: true\n") if is_open else LIBRARY
    resolved_case = load_case(write(tmp_path, toolkit=library))
    calls = len(resolved_case.tools)
    requests = asyncio.run(rehearse(resolved_case, ToolCallingAgent(MODEL), EMULATOR, (), calls))
    assert roles(requests) == ["agent"] * (calls + 1) + ["emulator"] * asked


def test_a_script_is_played_as_in_a_run(tmp_path: Path) -> None:
    resolved_case = load_case(write(tmp_path))
    undeclared = ("Library_DescribeBook", {"book_id": "B-1"})
    script = [("Library_SearchBooks", {"text": "tram"}), ("Library_GetBook", {}), undeclared, undeclared]
    requests = asyncio.run(rehearse(resolved_case, ToolCallingAgent(MODEL), EMULATOR, (), script))
    assert roles(requests) == ["agent"] * 5 + ["emulator"]
    last = requests[-1].text
    assert '"title":"The Last Tram"' in last.replace(": ", ":")
    assert "InvalidRequest" in last


@dataclass(frozen=True)
class AgentWithModel:
    model: str = "gpt-4o"

    async def __call__(self, _task: Any, _toolbox: Any) -> str:
        raise AssertionError("the custom agent was run")


async def spend(_task: Any, _toolbox: Any) -> str:
    raise AssertionError("the custom agent was run")


@pytest.mark.parametrize("agent", [custom_agent(spend, "mine"), AgentWithModel()])
def test_a_custom_agent_is_not_run(agent: Any) -> None:
    assert roles(rehearse_case(agent)) == ["emulator"] * 3 + ["evaluator"] * 2


def test_components_without_a_model_send_nothing() -> None:
    assert rehearse_case(custom_agent(print, "mine"), OfflineEmulator(), ()) == []


def test_without_calls_only_agent_and_evaluators_send_requests() -> None:
    assert roles(rehearse_case(ToolCallingAgent(MODEL), calls=0)) == ["agent", "evaluator", "evaluator"]
