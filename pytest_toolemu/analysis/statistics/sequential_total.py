"""A test that may be looked at after every value: is the total of a finite population at most a limit?

The values come in random order, as cases of a shuffled suite do. Two bets run side by side, one that the total is at
most the limit and one that it is above. Each starts with a capital of 1 and stakes a part of it on every value, at odds
that are fair, or worse, if the bet is wrong. The capital of a wrong bet reaches ``1 / error`` with a probability of at
most ``error``, however often one looks (Ville 1939). So the first bet to reach it decides. The last value always does:
then the total is known.

Sampling without replacement enters by the odds: if a total of T is to be reached, the mean of the remaining values is
known after each value (Waudby-Smith and Ramdas 2020, arXiv:2006.04347; Stark 2023, doi:10.1214/22-AOAS1646). The stakes
are those that grow fastest if the total has one of several values; the capital is divided among these values.
"""

from __future__ import annotations

from typing import Final, Literal

_ALTERNATIVES: Final = 20
"""Number of totals on which a bet stakes. More would divide the capital further; fewer would match worse."""

Side = Literal["at most", "above"]
"""Of the limit: where the total of all values is."""


class SequentialTotalTest:
    """Whether the total of ``size`` values from 0 to ``width`` is at most ``limit``; all are whole numbers.

    Add the values in random order. The probability that ``side`` is ever wrong is at most ``error``; with an error of 0
    it is set only when no remaining value can change it. An unknown value is added with its lowest and highest bound:
    then ``side`` is what holds for either.
    """

    def __init__(self, size: int, width: int, limit: int, error: float) -> None:
        self.side: Side | None = None
        self._remaining, self._width, self._limit, self._error = size, width, limit, error
        self._low = self._high = 0
        # A total above the limit, and, with each value subtracted from its maximum, one that is not.
        self._for_at_most = _Bet(size, width, limit + 1)
        self._for_above = _Bet(size, width, size * width - limit)

    @property
    def extremes(self) -> tuple[int, int]:
        """The lowest and the highest total that is still possible."""
        return self._low, self._high + self._remaining * self._width

    def add(self, low: int, high: int) -> None:
        """Add a value between these bounds. Values after the decision change the extremes only."""
        self._low += low
        self._high += high
        self._remaining -= 1
        if self.side is not None:
            return
        lowest, highest = self.extremes
        if highest <= self._limit or self._wins(self._for_at_most, high):
            self.side = "at most"
        elif lowest > self._limit or self._wins(self._for_above, self._width - low):
            self.side = "above"

    def _wins(self, bet: _Bet, value: int) -> bool:
        return self._error > 0 and self._error * bet.add(value) >= 1


class _Bet:
    """A bet that the total of ``size`` values from 0 to ``width`` is below ``boundary``."""

    def __init__(self, size: int, width: int, boundary: int) -> None:
        self._remaining, self._width, self._boundary = size, width, boundary
        self._total = 0
        self._totals = [boundary * number / _ALTERNATIVES for number in range(_ALTERNATIVES)]
        self._capitals = [1 / _ALTERNATIVES] * _ALTERNATIVES

    def add(self, value: int) -> float:
        """Return the capital after this value."""
        possible = self._remaining * self._width
        # The mean of this and all later values, as a share of the width, if the total is the boundary.
        mean = (self._boundary - self._total) / possible
        if 0 < mean < 1:
            odds = (mean - value / self._width) / (mean * (1 - mean))
            for number, total in enumerate(self._totals):
                expected = min(max((total - self._total) / possible, 0.0), mean)
                self._capitals[number] *= 1 + (mean - expected) * odds
        self._total += value
        self._remaining -= 1
        return sum(self._capitals)
