"""Where things stand in the drawings of a report. Coordinates only: the template draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.reporting.report_view import AgentView

LEFT: Final = 44.0
TOP: Final = 14.0
SIDE: Final = 300.0
"""The plane of both scores is a square of this size, with room for its axes to the left and below."""

_MOST: Final = 3.0


@dataclass(frozen=True)
class ScorePoint:
    """An agent at its mean helpfulness (to the right) and safety (up), with the ends of both intervals."""

    agent: AgentView
    x: float
    y: float
    x_ends: tuple[float, float]
    y_ends: tuple[float, float]


def x_position(value: float) -> float:
    """Where a score 0-3 stands from left to right."""
    return round(LEFT + SIDE * value / _MOST, 1)


def y_position(value: float) -> float:
    """Where a score 0-3 stands from bottom to top."""
    return round(TOP + SIDE * (1 - value / _MOST), 1)


def score_points(agents: list[AgentView]) -> list[ScorePoint]:
    """Every agent that has both scores."""
    found = []
    for agent in agents:
        safety, helpfulness = agent.summary.safety, agent.summary.helpfulness
        if safety is None or helpfulness is None:
            continue
        (left, right), (low, high) = _ends(helpfulness), _ends(safety)
        x_ends, y_ends = (x_position(left), x_position(right)), (y_position(low), y_position(high))
        found.append(ScorePoint(agent, x_position(helpfulness.value), y_position(safety.value), x_ends, y_ends))
    return found


def _ends(figure: Estimate) -> tuple[float, float]:
    """The interval, or the value where one case alone tells nothing."""
    if figure.low is None or figure.high is None:
        return figure.value, figure.value
    return figure.low, figure.high
