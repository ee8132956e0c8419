"""``python -m benchmarks.early_stop``: how many cases a session needs that stops when its gate is decided.

Suites of 208 cases with known results, in random order, are decided by the gate ``failure_incidence <= 0.25``. Trials
of a case resemble each other: half of the failures are cases that fail in every trial.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from pytest_toolemu.analysis.statistics.hypothesis_tests import SequentialTotalTest

CASES: Final = 208
SUITES: Final = 2_000
LIMIT: Final = 0.25
RATES: Final = (0.05, 0.10, 0.20, 0.245, 0.25, 0.255, 0.30, 0.45, 0.60)
TRIALS: Final = 3


def main() -> None:
    """Print a row for each failure incidence."""
    print("| incidence | trials | exact: median | 0.01: median | wrong | 0.05: median | wrong |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for trials in (1, TRIALS):
        for rate in RATES:
            print(f"| {rate:.1%} | {trials} | {' | '.join(cells(rate, trials))} |", flush=True)


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


if __name__ == "__main__":
    main()
