"""The types of callables that a run needs, besides ``Agent`` and ``Emulator`` in ``toolbox``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pytest_toolemu.core.trajectory import Trajectory
from pytest_toolemu.core.verdict import Verdict

Evaluator = Callable[[Trajectory], Awaitable[list[Verdict]]]
"""Judges a finished trajectory. If it cannot, its verdict has a ``problem``; a ModelError is raised as it is."""
