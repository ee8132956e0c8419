"""Limits in gates: how to read them, and which ones are mistakes.

A limit is compared as the decimal number that the user wrote, never as a rounded binary fraction, so that 29 of 100
runs meet ``0.29``.
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
    """Return a float as the decimal number that the user wrote: 29/100 for ``0.29``."""
    return Fraction(repr(limit))


def parse_percent(value: Any) -> Any:
    """Return 0.02 for the text ``2%``, and any other value unchanged."""
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    return float(Fraction(match.group(1)) / 100) if match else value


def read_share(value: Any) -> float:
    """Read a limit on the share of runs that a session may lose; ValueError unless it is a share below 1."""
    share = parse_percent(value)
    if not _is_number(share) or not 0 <= share <= 1:
        raise ValueError("expected a share from 0 to 1, such as 0.05 or 5%")
    if share == 1:
        raise ValueError("a limit of 100 % has no effect; write a smaller share, such as 5%")
    return float(share)


@dataclass(frozen=True)
class LimitReader:
    """Reads a limit of one metric; ``expression`` selects the notation of examples in error messages."""

    metric: MetricName
    key: LimitKey
    expression: bool = False

    def read(self, value: Any) -> float:
        """Return the limit in the metric's unit; ValueError says why it is a mistake and what to write instead."""
        limit, metric = parse_percent(value), self._definition
        if not _is_number(limit):
            raise ValueError(f"expected a number; {self._example}")
        if isinstance(value, str) and not metric.percent:
            raise ValueError(f"only a share can be a percentage, but {self._range}; {self._example}")
        if self.key not in (metric.limit, "margin"):
            raise ValueError(self._rewards_harm(limit))
        if not 0 <= limit <= metric.span:
            raise ValueError(f"{self._range}; {self._suggestion(limit)}")
        if limit == self._harmless:
            raise ValueError(f"{self._range}, so this gate can never fail; {self._example}")
        return float(limit)

    @property
    def _definition(self) -> GateMetric:
        return GATE_METRICS[self.metric]

    @property
    def _range(self) -> str:
        kind = "a share" if self._definition.percent else "a mean score"
        return f"{self.metric} is {kind} from 0 to {self._definition.span}"

    @property
    def _harmless(self) -> int:
        """The limit or margin that every agent meets."""
        return 0 if self.key == "at_least" else self._definition.span

    @property
    def _example(self) -> str:
        metric = self._definition
        if self.key == "margin":
            return self._write("margin", "5%" if metric.percent else "0.2")
        return self._write(metric.limit, "2" if not metric.percent else "10%" if metric.worse == 1 else "90%")

    def _rewards_harm(self, value: float) -> str:
        high, side = ("high", "a lower") if self._definition.worse == 1 else ("low", "an upper")
        limit = self._definition.limit
        inside = 0 < value < self._definition.span
        return f"a {high} {self.metric} is bad, so {side} limit rewards harm; " + (
            self._write(limit, f"{value:.12g}") if inside else self._example
        )

    def _suggestion(self, value: float) -> str:
        """Suggest 2 % to someone who wrote 2 for a share."""
        percent = self._definition.percent and 1 < value < 100
        return self._write(self.key, f"{value:.12g}%") if percent else self._example

    def _write(self, key: LimitKey, value: str) -> str:
        return f"write '{self.metric} {SIGNS[key]} {value}'" if self.expression else f"write '{key}: {value}'"


def never_met_by_a_bound(metric: MetricName, limit: float) -> bool:
    """Return whether the limit is the best possible value, which no interval of a finite number of runs can meet."""
    definition = GATE_METRICS[metric]
    return limit == (0 if definition.worse == 1 else definition.span)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
