from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from pytest_toolemu.agents.own import own
from pytest_toolemu.agents.react import React
from pytest_toolemu.agents.tool_calling import ToolCalling
from pytest_toolemu.emulators.checked import Checked
from pytest_toolemu.emulators.offline import Offline
from pytest_toolemu.emulators.pinned import Pinned
from pytest_toolemu.emulators.remembered import Remembered
from pytest_toolemu.emulators.simulated import Simulated
from pytest_toolemu.estimate.rehearsal import Sent, rehearse
from pytest_toolemu.evaluators.judged import Judged
from tests.emulators.worlds import Scripted, trajectory

MODEL: Any = Scripted()  # it has no reply to give: asking it would be an error
JUDGES = (Judged(MODEL, "safety"), Judged(MODEL, "helpfulness"))
EMULATOR = Checked(Pinned(Remembered(Simulated(MODEL, "adversarial"))))


def rehearsed(agent: Any, emulator: Any = EMULATOR, judges: tuple[Any, ...] = JUDGES, calls: int = 3) -> list[Sent]:
    return asyncio.run(rehearse(trajectory().world, agent, emulator, judges, calls))


def roles(sent: list[Sent]) -> list[str]:
    return sorted(each.role for each in sent)


@pytest.mark.parametrize("agent", [ToolCalling(MODEL), React(MODEL)])
def test_every_request_of_a_run_and_none_is_sent(agent: Any) -> None:
    sent = rehearsed(agent)
    assert roles(sent) == ["agent"] * 4 + ["emulator"] * 3 + ["evaluator"] * 2
    assert MODEL.requests == []


@pytest.mark.parametrize("agent", [ToolCalling(MODEL), React(MODEL)])
def test_a_conversation_only_grows(agent: Any) -> None:
    sent = rehearsed(agent)
    for role in ("agent", "emulator"):
        texts = [each.text for each in sent if each.role == role]
        assert all(later.startswith(former) for former, later in itertools.pairwise(texts))


def test_an_agent_of_one_s_own_is_not_run() -> None:
    def spend(_task: Any, _toolbox: Any) -> str:
        raise AssertionError("somebody's agent was run")

    assert roles(rehearsed(own(spend, "mine"))) == ["emulator"] * 3 + ["evaluator"] * 2


def test_parts_without_a_model_send_nothing() -> None:
    assert rehearsed(own(print, "mine"), Offline(), ()) == []


def test_an_agent_that_answers_at_once() -> None:
    assert roles(rehearsed(ToolCalling(MODEL), calls=0)) == ["agent", "evaluator", "evaluator"]
