"""``python -m benchmarks.early_stop``: how many cases a session needs that stops when its gate is decided.

Suites of 208 cases with known results, in random order, are decided by the gate ``failure_incidence <= 0.25``. Trials
of a case resemble each other: half of the failures are cases that fail in every trial. A second table has the gate
``failure_incidence no worse than the baseline``, by the numbers of cases that became worse and better.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from pytest_toolemu.analysis.gates.baseline import Baseline
from pytest_toolemu.analysis.gates.early_decision import EarlyDecisions
from pytest_toolemu.analysis.gates.gate_decision import decide_gates
from pytest_toolemu.analysis.gates.gate_file import Gate, Gates
from pytest_toolemu.analysis.gates.watched_gate import PlannedRuns
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.statistics.sequential_total import SequentialTotalTest

CASES: Final = 208
SUITES: Final = 2_000
LIMIT: Final = 0.25
RATES: Final = (0.05, 0.10, 0.20, 0.245, 0.25, 0.255, 0.30, 0.45, 0.60)
TRIALS: Final = 3
CHANGES: Final = ((0, 0), (0, 8), (4, 4), (8, 8), (15, 15), (15, 8), (20, 8), (30, 5), (60, 5))
COMPARED_SUITES: Final = 200
FAILED_BEFORE: Final = 60


def main() -> None:
    """Print a row for each failure incidence."""
    print("| incidence | trials | exact: median | 0.01: median | wrong | 0.05: median | wrong |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for trials in (1, TRIALS):
        for rate in RATES:
            print(f"| {rate:.1%} | {trials} | {' | '.join(cells(rate, trials))} |", flush=True)
    print("\n| worse | better | exact: median | 0.01: median | wrong | 0.05: median | wrong |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for worse, better in CHANGES:
        print(f"| {worse} | {better} | {' | '.join(compared_cells(worse, better))} |", flush=True)


def cells(rate: float, trials: int) -> Iterator[str]:
    """Yield the shares of needed cases, and of wrong decisions where they are possible."""
    for error in (0.0, 0.01, 0.05):
        needed, wrong = simulate(rate, trials, error, SUITES if error else SUITES // 10)
        yield f"{statistics.median(needed) / CASES:.0%}"
        if error:
            yield f"{wrong:.2%}"


def simulate(rate: float, trials: int, error: float, suites: int) -> tuple[list[int], float]:
    """Return the number of cases that each suite needs, and the share of suites that are decided wrongly."""
    draw, limit = random.Random(f"{rate} {trials} {error}"), int(LIMIT * CASES * trials)
    needed, wrong = [], 0
    for _ in range(suites):
        failures = suite(rate, trials, draw)
        number, side = decide(failures, trials, limit, error)
        needed.append(number)
        wrong += side != ("at most" if sum(failures) <= limit else "above")
    return needed, wrong / suites


def suite(rate: float, trials: int, draw: random.Random) -> list[int]:
    """Return the failed trials of each case, in random order; their sum is the incidence, rounded."""
    total = round(rate * CASES * trials)
    failures = [0] * CASES
    for number in range(total // (2 * trials)):
        failures[number] = trials
    rest = [case for case in range(CASES) for _ in range(trials) if failures[case] < trials]
    for case in draw.sample(rest, total - sum(failures)):
        failures[case] += 1
    draw.shuffle(failures)
    return failures


def decide(values: Sequence[int], width: int, limit: int, error: float) -> tuple[int, str]:
    """Return after how many cases the gate is decided, and how."""
    test = SequentialTotalTest(len(values), width, limit, error)
    for number, value in enumerate(values, 1):
        test.add(value, value)
        if test.side is not None:
            return number, test.side
    raise AssertionError("undecided after the last case")


def compared_cells(worse: int, better: int) -> Iterator[str]:
    """Yield the shares of needed cases, and of wrong decisions, of suites that are compared with a baseline."""
    before = [case < FAILED_BEFORE for case in range(CASES)]
    after = [case >= better for case in range(FAILED_BEFORE)] + [case < worse for case in range(CASES - FAILED_BEFORE)]
    baseline = Baseline.of(_runs(before), "2026-01-01T00:00:00+00:00")
    gates = Gates(gates=(Gate(metric="failure_incidence", baseline="no_worse"),), baseline="baseline.json")
    expected = decide_gates(gates, _runs(after), baseline)[-1].status
    for error in (0.0, 0.01, 0.05):
        draw, needed, wrong = random.Random(f"{worse} {better} {error}"), [], 0
        for _ in range(COMPARED_SUITES if error else COMPARED_SUITES // 10):
            runs = _runs(after)
            draw.shuffle(runs)
            number, status = decide_comparison(gates, baseline, runs, error)
            needed.append(number)
            wrong += status != expected
        yield f"{statistics.median(needed) / CASES:.0%}"
        if error:
            yield f"{wrong / len(needed):.2%}"


def decide_comparison(gates: Gates, baseline: Baseline, runs: Sequence[RunSummary], error: float) -> tuple[int, str]:
    """Return after how many cases a gate with a baseline is decided, and how."""
    planned = [PlannedRuns(run.case, run.case, run.agent, (run.case,), {}) for run in runs]
    early, known = EarlyDecisions([(gates, baseline)], planned, error), dict[str, RunSummary]()
    for number, run in enumerate(runs, 1):
        known[run.case] = run
        if early.update(known):
            return number, early.applied([decide_gates(gates, runs[:number], baseline)], known)[0][-1].status
    return len(runs), decide_gates(gates, runs, baseline)[-1].status


def _runs(failed: Sequence[bool]) -> list[RunSummary]:
    return [
        RunSummary(case=f"case-{number}", agent="agent", safety=0 if bad else 3, outcome="failed" if bad else "passed")
        for number, bad in enumerate(failed)
    ]


if __name__ == "__main__":
    main()
