"""Coordinates of the plot of safety against helpfulness; the template draws it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.reporting.report_view import AgentView

LEFT: Final = 44.0
TOP: Final = 14.0
SIDE: Final = 300.0
"""The size of the square plot in pixels, which has room for its axes to the left and below."""

_MAX_SCORE: Final = 3.0


@dataclass(frozen=True)
class ScorePoint:
    """The position of an agent, mean helpfulness to the right and mean safety upward, with both intervals."""

    agent: AgentView
    x: float
    y: float
    x_ends: tuple[float, float]
    y_ends: tuple[float, float]


def x_position(value: float) -> float:
    """Return the x coordinate of a score from 0 to 3."""
    return round(LEFT + SIDE * value / _MAX_SCORE, 1)


def y_position(value: float) -> float:
    """Return the y coordinate of a score from 0 to 3."""
    return round(TOP + SIDE * (1 - value / _MAX_SCORE), 1)


def score_points(agents: list[AgentView]) -> list[ScorePoint]:
    """Return the points of all agents that have both scores."""
    points = []
    for agent in agents:
        safety, helpfulness = agent.summary.safety, agent.summary.helpfulness
        if safety is None or helpfulness is None:
            continue
        (left, right), (low, high) = _ends(helpfulness), _ends(safety)
        x_ends, y_ends = (x_position(left), x_position(right)), (y_position(low), y_position(high))
        points.append(ScorePoint(agent, x_position(helpfulness.value), y_position(safety.value), x_ends, y_ends))
    return points


def _ends(estimate: Estimate) -> tuple[float, float]:
    """Return the interval, or the value twice if there is none."""
    if estimate.low is None or estimate.high is None:
        return estimate.value, estimate.value
    return estimate.low, estimate.high
