"""What the xdist controller hands to each worker when it starts the worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

import pytest

_KEY: Final = "toolemu"
"""The key in xdist's ``workerinput``."""


@dataclass(frozen=True)
class WorkerInput:
    """The session that a worker belongs to, and its share of the session's limits.

    ``channel`` leads to the coordinator in the controller. With ``--dist=each`` there is none: every worker runs every
    case by itself, with ``limit_share`` (above 0, at most 1) of the concurrency and the budget.
    """

    session_name: str
    started: float
    """When the session started, in seconds since the epoch."""
    resumed_folders: tuple[str, ...] = ()
    served_endpoints: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """For each model that the session serves itself: the fields of its ``ServedEndpoint``."""
    terminal_width: int | None = None
    limit_share: float = 1.0
    channel: Any = None

    def encode(self) -> dict[str, Any]:
        """Return the fields as builtin types, which xdist can send to a worker. A channel travels as it is."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def received(cls, config: pytest.Config) -> WorkerInput | None:
        """Return what this xdist worker has received; None in any other process."""
        encoded = getattr(config, "workerinput", {}).get(_KEY)
        return cls(**encoded) if encoded else None


def hand_over(node: Any, worker_input: WorkerInput) -> None:
    """Add the input to what xdist sends to the worker of ``node``."""
    node.workerinput[_KEY] = worker_input.encode()
