"""The callables that a case is run with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pytest_toolemu.core.run import Verdict
from pytest_toolemu.core.trajectory import Trajectory

Evaluator = Callable[[Trajectory], Awaitable[list[Verdict]]]
"""Judges a finished trajectory. Where it cannot, its verdict has a ``problem``; a ModelError is let through."""
