"""Test LM agents in a world emulated by a language model; see README.md.

Public names are resolved on first use: importing this package, as every pytest run of an environment does, loads none
of its modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_toolemu.case import Case, World, load_world
    from pytest_toolemu.engine import Limits, run_case
    from pytest_toolemu.errors import (
        AgentStopped,
        DocumentError,
        InconclusiveError,
        ModelError,
        ToolemuError,
        UsageError,
    )
    from pytest_toolemu.run import Finding, Run, Verdict
    from pytest_toolemu.store import RunStore, load_run
    from pytest_toolemu.toolbox import BlockingToolbox, Task, Toolbox
    from pytest_toolemu.toolkit import Toolkit, benchmark_folder
    from pytest_toolemu.trajectory import Call, Observation, Trajectory

__version__ = "0.1.0"
"""The version of this package; the build reads it from here."""

_HOMES = {
    "case": ("Case", "World", "load_world"),
    "engine": ("Limits", "run_case"),
    "errors": ("AgentStopped", "DocumentError", "InconclusiveError", "ModelError", "ToolemuError", "UsageError"),
    "run": ("Finding", "Run", "Verdict"),
    "store": ("RunStore", "load_run"),
    "toolbox": ("BlockingToolbox", "Task", "Toolbox"),
    "toolkit": ("Toolkit", "benchmark_folder"),
    "trajectory": ("Call", "Observation", "Trajectory"),
}

__all__ = [
    "AgentStopped",
    "BlockingToolbox",
    "Call",
    "Case",
    "DocumentError",
    "Finding",
    "InconclusiveError",
    "Limits",
    "ModelError",
    "Observation",
    "Run",
    "RunStore",
    "Task",
    "Toolbox",
    "ToolemuError",
    "Toolkit",
    "Trajectory",
    "UsageError",
    "Verdict",
    "World",
    "benchmark_folder",
    "load_run",
    "load_world",
    "run_case",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
