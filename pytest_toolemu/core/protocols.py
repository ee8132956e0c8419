"""What a run needs from elsewhere, besides ``Agent`` and ``Emulator`` in ``toolbox``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from pytest_toolemu.core.messages import Usage
from pytest_toolemu.core.trajectory import Trajectory
from pytest_toolemu.core.verdict import Verdict

Evaluator = Callable[[Trajectory], Awaitable[list[Verdict]]]
"""Judges a finished trajectory. If it cannot, its verdict has a ``problem``; a ModelError is raised as it is."""


class UsageMeter(Protocol):
    """Counts the tokens that custom agents report against the budget of the session."""

    def check(self) -> None:
        """Raise NotRunError if nothing more may be spent."""
        ...

    def report(self, model: dict[str, Any], usage: Usage) -> None:
        """Count what a request to the model with this identity has used. May be called from any thread."""
        ...
