"""Repeated runs of the same agent rarely fail a gate by chance, and gates detect a worse agent.

Most simulated agents are unsafe in each case with that case's probability, as real agents are: most cases are easy, some
always fail, and some are undecided. Scores of skewed and symmetric shapes test the bounds of means.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from pytest_toolemu.analysis.gates.baseline import Baseline
from pytest_toolemu.analysis.gates.gate_decision import decide_gates
from pytest_toolemu.analysis.gates.gate_file import Gate, Gates
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.statistics.hypothesis_tests import p_worse
from pytest_toolemu.analysis.statistics.intervals import mean_estimate
from tests.gates.run_summaries import agent, edited, results

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


def alarms(
    draw: random.Random, cases: int, trials: int, worse: float, gates: Gates = FILE, sessions: int = SESSIONS
) -> float:
    """Return the share of sessions in which any gate failed, against a baseline of the agent before it became worse."""
    failed = 0
    for _ in range(sessions):
        chances = [draw.betavariate(0.5, 1) for _ in range(cases)]
        before = Baseline.of(agent(draw, chances, trials), "2026-03-01")
        after = agent(draw, [chance + worse * (1 - chance) for chance in chances], trials)
        failed += any(decision.status == "failed" for decision in decide_gates(gates, after, before))
    return failed / sessions


# 200 sessions: beyond 0.05 + 2.33 standard errors, an alarm rate of 5 % is refuted at 1 %.
HIGHEST = 0.05 + 2.33 * (0.05 * 0.95 / SESSIONS) ** 0.5


@pytest.mark.parametrize(("cases", "trials"), [(40, 1), (144, 1), (60, 3)])
def test_the_same_agent_fails_no_more_often_than_the_level(cases: int, trials: int) -> None:
    assert alarms(random.Random(1), cases, trials, worse=0) <= HIGHEST


def test_a_margin_and_a_small_loss_within_it_raise_no_alarm() -> None:
    gates = Gates(gates=(Gate(metric="failure_incidence", baseline="no_worse", margin=0.1),), baseline="baseline.json")
    # The true rise is 0.15 of the two thirds that were safe: just at the margin.
    assert alarms(random.Random(2), 144, 1, worse=0.15, gates=gates) <= HIGHEST


def test_an_agent_that_is_worse_is_detected() -> None:
    assert alarms(random.Random(3), 144, 1, worse=0.3, sessions=60) >= 0.8


def test_an_agent_inferior_by_the_margin_rarely_passes() -> None:
    gate = Gate(metric="failure_incidence", baseline="not_inferior", margin=0.1)
    gates = Gates(gates=(gate,), baseline="baseline.json")
    passed = 1 - alarms(random.Random(4), 144, 1, worse=0.15, gates=gates)
    assert passed <= HIGHEST
    assert alarms(random.Random(5), 360, 1, worse=0, gates=gates, sessions=60) <= 0.2


SHAPES = {
    "skewed: 90 % are 3, the rest 2": (0, 0, 0.1, 0.9),
    "skewed: 90 % are 3, the rest spread": (0.04, 0.03, 0.03, 0.9),
    "rare and severe: 3 % are 0": (0.03, 0, 0, 0.97),
    "symmetric": (0.1, 0.4, 0.4, 0.1),
}
"""Chances of the scores 0 to 3."""

SAMPLES = 600
# As above, for each end of a 95 % interval.
MOST_RELEASED = 0.025 + 2.33 * (0.025 * 0.975 / SAMPLES) ** 0.5


def shares_outside(samples: Iterator[list[list[float]]], mean: float) -> tuple[float, float]:
    """Return the shares of 95 % intervals that lie above the true mean, and below it."""
    estimates = [estimate for _ in range(SAMPLES) if (estimate := mean_estimate(next(samples), (0, 3)))]
    above = sum((estimate.low or 0) > mean + 1e-6 for estimate in estimates)
    below = sum((estimate.high or 3) < mean - 1e-6 for estimate in estimates)
    return above / SAMPLES, below / SAMPLES


@pytest.mark.parametrize("cases", [20, 50, 144, 208])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_agent_at_the_limit_passes_a_bound_no_more_often_than_its_error_level(shape: str, cases: int) -> None:
    chances = SHAPES[shape]
    draw = np.random.default_rng(7)

    def samples() -> Iterator[list[list[float]]]:
        while True:
            yield [[float(score)] for score, n in enumerate(draw.multinomial(cases, chances)) for _ in range(n)]

    assert max(shares_outside(samples(), float(np.dot(range(4), chances)))) <= MOST_RELEASED


@pytest.mark.parametrize("cases", [20, 50, 144])
def test_correlated_trials_do_not_raise_the_error_of_a_bound(cases: int) -> None:
    """Nine of ten cases are always safe; the tenth is unsafe in each of three trials with its own probability."""
    draw = np.random.default_rng(8)

    def samples() -> Iterator[list[list[float]]]:
        while True:
            chances = np.where(draw.random(cases) < 0.1, draw.random(cases), 0)
            yield [[0.0 if draw.random() < chance else 3.0 for _ in range(3)] for chance in chances]

    assert max(shares_outside(samples(), 3 * (1 - 0.1 / 2))) <= MOST_RELEASED


@pytest.mark.parametrize("cases", [20, 50])
def test_an_agent_at_the_limit_passes_a_gate_by_bound_in_at_most_one_of_forty_sessions(cases: int) -> None:
    """Exact, over every number of cases that may score 0 with a probability of 15 %, while all others score 3."""
    gates = Gates(gates=(Gate(metric="mean_safety", at_least=2.55, decide_by="bound"),))
    released = 0.0
    for unsafe in range(cases + 1):
        *_, decision = decide_gates(gates, results([0] * unsafe + [3] * (cases - unsafe)))
        chance = math.comb(cases, unsafe) * 0.15**unsafe * 0.85 ** (cases - unsafe)
        released += chance * (decision.status == "passed")
    assert released <= 0.025


UNEQUAL = {
    "15 % lose 1, 5 % gain 3": ((1, 0.15), (-3, 0.05)),
    "30 % lose 1, 10 % gain 3": ((1, 0.3), (-3, 0.1)),
    "6 % lose 1, 2 % gain 3": ((1, 0.06), (-3, 0.02)),
    "5 % lose 3, 15 % gain 1": ((3, 0.05), (-1, 0.15)),
    "20 % lose 1, 10 % gain 2": ((1, 0.2), (-2, 0.1)),
}
"""Changes of a score that cancel out on average, though they are of unequal size; losses are above 0."""


@pytest.mark.parametrize("cases", [20, 50, 144])
@pytest.mark.parametrize("shape", UNEQUAL)
def test_unequal_changes_that_cancel_out_raise_no_more_alarms_than_the_level(shape: str, cases: int) -> None:
    """Exact, over all numbers of cases that change either way, up to five standard deviations."""
    (loss, p_loss), (gain, p_gain) = UNEQUAL[shape]
    alarms = 0.0
    for lost_cases in likely(cases, p_loss):
        for gained in likely(cases, p_gain):
            same = cases - lost_cases - gained
            if same < 0:
                continue
            chance = (
                math.factorial(cases) / math.factorial(lost_cases) / math.factorial(gained) / math.factorial(same)
                * p_loss**lost_cases * p_gain**gained * (1 - p_loss - p_gain) ** same
            )  # fmt: skip
            alarms += chance * (p_worse(changes((loss, lost_cases), (gain, gained), (0, same)), 1, 3) <= 0.05)
    assert alarms <= 0.05


def likely(n: int, chance: float) -> range:
    """Return the counts within five standard deviations of the expected one."""
    width = 5 * math.sqrt(n * chance * (1 - chance)) + 1
    return range(max(0, math.floor(n * chance - width)), min(n, math.ceil(n * chance + width)) + 1)


def changes(*counts: tuple[int, int]) -> Sequence[tuple[list[float], list[float]]]:
    """Return pairs of single trials whose values rise by each amount in that many cases."""
    return [([0.0], [float(amount)]) for amount, count in counts for _ in range(count)]


def test_several_gates_on_means_keep_the_level_together() -> None:
    """Frequent losses of one point of safety and helpfulness are balanced by rarer gains of three."""
    gates = Gates(
        gates=(Gate(metric="mean_safety", baseline="no_worse"), Gate(metric="mean_helpfulness", baseline="no_worse")),
        baseline="baseline.json",
    )
    draw, failed = np.random.default_rng(9), 0
    for _ in range(SESSIONS):
        kinds = draw.choice(3, (50, 2), p=(0.15, 0.05, 0.8))
        before, after = (
            [edited(run, safety=scores[safety], helpfulness=scores[helpfulness])
             for run, (safety, helpfulness) in zip(results([3] * 50), kinds, strict=True)]
            for scores in ((3, 0, 3), (2, 3, 3))
        )  # fmt: skip
        decisions = decide_gates(gates, after, Baseline.of(before, "2026-03-01"))
        failed += any(decision.status == "failed" for decision in decisions)
    assert failed / SESSIONS <= HIGHEST


def test_simulated_rows_have_the_intended_scores() -> None:
    runs: list[RunSummary] = agent(random.Random(6), [0.0, 1.0], trials=3)
    assert [run.safety for run in runs] == [3, 3, 3, 0, 0, 0]
