"""What the values of a finite population can be, of which some were seen in random order.

For each of a few thresholds, the number of values that reach it is bounded by a confidence sequence: a bound that holds
for all times at once, so that one may look after every value. It is the prior-posterior ratio of Waudby-Smith and
Ramdas (2020, arXiv:2006.04347): a number is excluded as soon as the values seen so far are less probable under it, by
the permitted error, than under a prior over all numbers. The values that were seen enter as they are, and the others
are as large as the bounds allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_RARE: Final = (1, 10)
"""Parameters of the beta prior for the share of rare values. In most cases, a new agent does what the old one did."""

_STEPS: Final = 3
"""Number of thresholds above zero, and of those at or below it. More would divide the permitted error further."""

Range = tuple[int, int]
"""The lowest and the highest possible value of an item."""


class LargestValues:
    """The largest values that a population can have: changes, of which 0 and smaller ones are good.

    ``ranges`` has the possible values of each item, in the random order in which they will be seen. The probability
    that the sorted values of ``completed`` are ever exceeded anywhere by the true ones is at most ``error``. With an
    error of 0 they are the arithmetical extreme.
    """

    def __init__(self, ranges: Sequence[Range], error: float) -> None:
        self._ranges = ranges
        self._seen: list[int] = []
        self._most = max((max(abs(low), abs(high)) for low, high in ranges), default=0)
        parts = [self._most * step // _STEPS for step in range(_STEPS)]
        thresholds = sorted({*(1 + part for part in parts), *(-part for part in parts)})
        self._counts = {
            threshold: _LargestCount(len(ranges), error / len(thresholds), _RARE if threshold > 0 else _RARE[::-1])
            for threshold in thresholds
        }

    def add(self, value: int) -> None:
        """Add the value of the next item, or the highest that it may have."""
        self._seen.append(value)
        for threshold, count in self._counts.items():
            count.add(value >= threshold)

    def completed(self) -> list[int]:
        """Return a value for each item: those seen, and the largest ones that the others may have."""
        # Of n values, k can reach a number only if k items can, so the largest values belong to the widest ranges.
        order = sorted(range(len(self._seen), len(self._ranges)), key=lambda item: -self._ranges[item][1])
        values = dict(zip(order, self._largest_unseen(len(order)), strict=True))
        return self._seen + [self._clipped(item, values[item]) for item in sorted(values)]

    def _clipped(self, item: int, value: int) -> int:
        low, high = self._ranges[item]
        return max(min(value, high), low)

    def _largest_unseen(self, number: int) -> list[int]:
        """Return the largest values that this number of unseen items may have, in descending order."""
        values: list[int] = []
        below = self._most
        for threshold in sorted(self._counts, reverse=True):
            values += [below] * (min(self._counts[threshold].unseen, number) - len(values))
            below = threshold - 1
        return values + [below] * (number - len(values))


class _LargestCount:
    """The largest number of marked items that a population can have, seen in random order.

    ``prior`` has the parameters of a beta distribution over the share of marked items.
    """

    def __init__(self, size: int, error: float, prior: tuple[int, int]) -> None:
        self._size, self._prior = size, prior
        self._threshold = math.log(1 / error) if error else math.inf
        self._marked = self._others = 0
        self._largest = size

    @property
    def unseen(self) -> int:
        """How many of the items that were not seen can be marked at most."""
        return self._largest - self._marked

    def add(self, is_marked: bool) -> None:
        self._marked += is_marked
        self._others += not is_marked
        # What arithmetic excludes, and then what is too improbable. The probability falls on both sides of one peak.
        self._largest = min(self._largest, self._size - self._others)
        predicted = self._log_predicted()
        while self._largest > self._marked and predicted - self._log_probability(self._largest) >= self._threshold:
            self._largest -= 1

    def _log_predicted(self) -> float:
        """Return the logarithm of the probability of the marks so far, in their order, under the prior."""
        marked, others = self._prior
        return _log_beta(marked + self._marked, others + self._others) - _log_beta(marked, others)

    def _log_probability(self, number: int) -> float:
        """Return the logarithm of the same probability if this number of items is marked."""
        unseen = self._size - self._marked - self._others
        return _log_choose(unseen, number - self._marked) - _log_choose(self._size, number)


def _log_beta(one: int, other: int) -> float:
    return math.lgamma(one) + math.lgamma(other) - math.lgamma(one + other)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
