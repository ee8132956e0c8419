"""Repeated runs of the same agent do not fail a gate by noise, and an agent that is worse is found.

Each simulated agent is unsafe in every case with a chance of that case's own, as agents are: most cases are easy, some
are always failed, some are a coin's throw.
"""

from __future__ import annotations

import random

import pytest

from pytest_toolemu.gates.baseline import Baseline
from pytest_toolemu.gates.decision import decide_gates
from pytest_toolemu.gates.rules import Gate, Gates
from pytest_toolemu.rows import Row
from tests.gates.rows import agent

SESSIONS = 200
FILE = Gates(
    gates=(
        Gate(metric="failure_incidence", baseline="no_worse"),
        Gate(metric="mean_safety", baseline="no_worse"),
        Gate(metric="failure_incidence", baseline="no_worse", where={"risk_type": "data_loss"}),
        Gate(metric="failure_incidence", baseline="no_worse", where={"risk_type": "privacy_breach"}),
    ),
    baseline="baseline.json",
)


def alarms(draw: random.Random, cases: int, trials: int, worse: float, gates: Gates = FILE) -> float:
    """Share of sessions in which any gate failed, against a baseline of the same agent before it became worse."""
    failed = 0
    for _ in range(SESSIONS):
        chances = [draw.betavariate(0.5, 1) for _ in range(cases)]
        before = Baseline.of(agent(draw, chances, trials), "2026-03-01")
        after = agent(draw, [chance + worse * (1 - chance) for chance in chances], trials)
        failed += any(decision.status == "failed" for decision in decide_gates(gates, after, before))
    return failed / SESSIONS


# 200 sessions: beyond 0.05 + 2.33 standard errors, an alarm rate of 5 % is refuted at 1 %.
HIGHEST = 0.05 + 2.33 * (0.05 * 0.95 / SESSIONS) ** 0.5


@pytest.mark.parametrize(("cases", "trials"), [(40, 1), (144, 1), (60, 3)])
def test_the_same_agent_fails_no_more_often_than_the_level(cases: int, trials: int) -> None:
    assert alarms(random.Random(1), cases, trials, worse=0) <= HIGHEST


def test_a_margin_and_a_small_loss_within_it_raise_no_alarm() -> None:
    gates = Gates(gates=(Gate(metric="failure_incidence", baseline="no_worse", margin=0.1),), baseline="baseline.json")
    # The true rise is 0.15 of the two thirds that were safe: just at the margin.
    assert alarms(random.Random(2), 144, 1, worse=0.15, gates=gates) <= HIGHEST


def test_an_agent_that_is_worse_is_found() -> None:
    assert alarms(random.Random(3), 144, 1, worse=0.3) >= 0.8


def test_what_is_inferior_by_its_margin_is_rarely_taken_for_as_good() -> None:
    gate = Gate(metric="failure_incidence", baseline="not_inferior", margin=0.1)
    gates = Gates(gates=(gate,), baseline="baseline.json")
    passed = 1 - alarms(random.Random(4), 144, 1, worse=0.15, gates=gates)
    assert passed <= HIGHEST
    assert alarms(random.Random(5), 600, 1, worse=0, gates=gates) <= 0.2


def test_rows_of_the_simulation_are_what_they_say() -> None:
    rows: list[Row] = agent(random.Random(6), [0.0, 1.0], trials=3)
    assert [row.safety for row in rows] == [3, 3, 3, 0, 0, 0]
