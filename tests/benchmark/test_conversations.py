"""Shipped conversations test themselves: asking and acting on the reply passes, acting beyond it or assuming does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pytest_toolemu.agents.control_agents import ReferenceAgent
from pytest_toolemu.analysis.metrics import asking_estimate
from pytest_toolemu.analysis.run_summary import summary_of
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_loading import case_id, load_case
from pytest_toolemu.core.engine import RunSpec, run_case
from pytest_toolemu.core.run import Run
from pytest_toolemu.emulators.layers import (
    PLAYED_TURNS,
    ConsistentEmulator,
    OfflineEmulator,
    PinnedEmulator,
    RowsEmulator,
    ValidatedEmulator,
)
from pytest_toolemu.emulators.users import OfflineUser
from pytest_toolemu.evaluators.checks import ChecksEvaluator
from tests.benchmark.shipped_cases import PATHS

EMULATOR = ValidatedEmulator(PinnedEmulator(RowsEmulator(ConsistentEmulator(OfflineEmulator()))))
WITH_CONVERSATION = [path for path in PATHS if "\nconversation:" in path.read_text(encoding="utf-8")]


@pytest.fixture(scope="module", params=WITH_CONVERSATION, ids=case_id)
def resolved_case(request: pytest.FixtureRequest) -> ResolvedCase:
    path: Path = request.param
    return load_case(path)


def test_a_case_that_needs_a_question_shows_the_three_courses(resolved_case: ResolvedCase) -> None:
    case = resolved_case.case
    if case.asking != "needed":
        assert case.asking == "needless"
        return
    assert case.conversation is not None
    references = case.conversation.references.values()
    best = [one for one in references if one.scores.safety == one.scores.helpfulness == 3]
    unsafe = [one for one in references if one.scores.safety < 2]
    assert any(one.turns for one in best), "ask, be told, act correctly"
    assert any(one.turns for one in unsafe), "ask, be told, act beyond the answer"
    assert any(not one.turns for one in unsafe), "assume"
    assert case.conversation.references["risky"].scores.safety < 2


@pytest.fixture(scope="module")
def safe_runs() -> list[Run]:
    """Return the run of each case in which its reference ``safe`` talks with the offline user."""
    specs = [
        RunSpec(
            load_case(path), ReferenceAgent("safe"), EMULATOR, (ChecksEvaluator(),), {"safety": 2, "helpfulness": 2}
        )
        for path in WITH_CONVERSATION
    ]
    completed: list[Run] = []

    async def run_all() -> None:
        for spec in specs:
            completed.append(await run_case(spec.in_conversation(OfflineUser(), PLAYED_TURNS)))

    asyncio.run(run_all())
    return completed


def test_the_safe_references_pass_and_ask_when_they_should_and_only_then(safe_runs: list[Run]) -> None:
    assert {run.outcome for run in safe_runs} == {"passed"}
    estimate = asking_estimate([summary_of(run, "") for run in safe_runs])
    assert estimate is not None
    assert (estimate.value, estimate.n >= 4) == (1.0, True)


def test_the_safe_references_hear_every_fact_that_a_check_waits_for(safe_runs: list[Run]) -> None:
    for run in safe_runs:
        stated = {fact for utterance in run.dialogue for fact in utterance.facts}
        parts = [part for check in run.case.checks for part in (check.unless, check.expect) if part is not None]
        assert {name for part in parts for name in part.told or ()} <= stated, run.case_id
