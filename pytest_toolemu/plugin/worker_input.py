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
    """The session that a worker belongs to.

    ``channel`` leads to the coordinator in the controller. With ``--dist=each`` there is none: the only worker leads
    the session.
    """

    session_name: str
    started: float
    """When the session started, in seconds since the epoch."""
    resumed_folders: tuple[str, ...] = ()
    served_endpoints: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """For each model that the session serves itself: the fields of its ``ServedEndpoint``."""
    terminal_width: int | None = None
    channel: Any = None

    def encode(self) -> dict[str, Any]:
        """Return the fields as builtin types, which xdist can send to a worker. A channel travels as it is."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def received(cls, config: pytest.Config) -> WorkerInput | None:
        """Return what this xdist worker has received; None in any other process."""
        encoded = getattr(config, "workerinput", {}).get(_KEY)
        return cls(**encoded) if encoded else None


def worker_count(config: pytest.Config) -> int:
    """Return how many workers run every item of this xdist worker; 1 in any other process."""
    worker_input = WorkerInput.received(config)
    if worker_input is None or worker_input.channel is not None:
        return 1
    return int(getattr(config, "workerinput", {}).get("workercount", 1))


def hand_over(node: Any, worker_input: WorkerInput) -> None:
    """Add the input to what xdist sends to the worker of ``node``."""
    node.workerinput[_KEY] = worker_input.encode()
