"""Judge a finished trajectory: a model with a rubric, or the case's own checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pytest_toolemu.run import Verdict
from pytest_toolemu.trajectory import Trajectory

Evaluator = Callable[[Trajectory], Awaitable[list[Verdict]]]
"""Judges a finished trajectory. Where it cannot, its verdict has a ``problem``; a ModelError is let through."""
