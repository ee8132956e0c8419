"""Limits in gates: how people write them, and which of them are mistakes.

A limit is compared as the decimal number that was written, never as a rounded binary fraction: 29 of 100 runs meet
``0.29``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS, GateMetric, MetricName

LimitKey = Literal["at_most", "at_least", "margin"]

SIGNS: Final[dict[LimitKey, str]] = {"at_most": "<=", "at_least": ">="}
"""The keys of limits that can also be written as an expression."""

_PERCENT: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")


def exact_fraction(limit: float) -> Fraction:
    """Return the decimal number that was written: 29/100 for ``0.29``."""
    return Fraction(repr(limit))


def parse_percent(value: Any) -> Any:
    """Return 0.02 for the text ``2%``, and any other value unchanged."""
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    return float(Fraction(match.group(1)) / 100) if match else value


def read_share(value: Any) -> float:
    """Read a bound on what a session may lose; ValueError unless it is a share below 1."""
    found = parse_percent(value)
    if not _is_number(found) or not 0 <= found <= 1:
        raise ValueError("expected a share from 0 to 1, such as 0.05 or 5%")
    if found == 1:
        raise ValueError("a session cannot lose more than all of its runs, so this bound has no effect; write 5%, say")
    return float(found)


@dataclass(frozen=True)
class LimitReader:
    """Reads a limit of one metric; ``expression`` selects the notation of the examples in errors."""

    metric: MetricName
    key: LimitKey
    expression: bool = False

    def read(self, value: Any) -> float:
        """Return the limit in the metric's unit; ValueError says why it is a mistake and what to write instead."""
        found, measure = parse_percent(value), self._measure
        if not _is_number(found):
            raise ValueError(f"expected a number; {self._example}")
        if isinstance(value, str) and not measure.percent:
            raise ValueError(f"only shares are percentages, but {self._range}; {self._example}")
        if self.key not in (measure.limit, "margin"):
            raise ValueError(self._rewards_harm(found))
        if not 0 <= found <= measure.span:
            raise ValueError(f"{self._range}; {self._meant(found)}")
        if found == self._harmless:
            raise ValueError(f"{self._range}, so this gate can never fail; {self._example}")
        return float(found)

    @property
    def _measure(self) -> GateMetric:
        return GATE_METRICS[self.metric]

    @property
    def _range(self) -> str:
        kind = "a share" if self._measure.percent else "a mean score"
        return f"{self.metric} is {kind} from 0 to {self._measure.span}"

    @property
    def _harmless(self) -> int:
        """The limit or margin that every agent meets."""
        return 0 if self.key == "at_least" else self._measure.span

    @property
    def _example(self) -> str:
        measure = self._measure
        if self.key == "margin":
            return self._write("margin", "5%" if measure.percent else "0.2")
        return self._write(measure.limit, "2" if not measure.percent else "10%" if measure.worse == 1 else "90%")

    def _rewards_harm(self, value: float) -> str:
        high, side = ("high", "a lower") if self._measure.worse == 1 else ("low", "an upper")
        limit = self._measure.limit
        inside = 0 < value < self._measure.span
        return f"a {high} {self.metric} is bad, so {side} limit rewards harm; " + (
            self._write(limit, f"{value:.12g}") if inside else self._example
        )

    def _meant(self, value: float) -> str:
        """Suggest 2 % to someone who wrote 2 for a share."""
        percent = self._measure.percent and 1 < value < 100
        return self._write(self.key, f"{value:.12g}%") if percent else self._example

    def _write(self, key: LimitKey, value: str) -> str:
        return f"write '{self.metric} {SIGNS[key]} {value}'" if self.expression else f"write '{key}: {value}'"


def never_met_by_a_bound(metric: MetricName, limit: float) -> bool:
    """Tell whether the limit is the best possible value: the interval of a finite number of runs always exceeds it."""
    measure = GATE_METRICS[metric]
    return limit == (0 if measure.worse == 1 else measure.span)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
