"""Test LM agents in a world emulated by a language model; see README.md.

Public names are resolved on first use: importing this package, as every pytest run of an environment does, loads none
of its modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_toolemu.core.case import Case, ResolvedCase
    from pytest_toolemu.core.case_loading import load_case
    from pytest_toolemu.core.engine import Limits, RunSpec, run_case
    from pytest_toolemu.core.run import Call, Finding, Observation, Run, Trajectory, UserReply, Verdict
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
    from pytest_toolemu.core.toolkit import Toolkit, benchmark_folder
    from pytest_toolemu.errors import (
        AgentStopped,
        DocumentError,
        InconclusiveError,
        ModelError,
        ToolemuError,
        UsageError,
    )
    from pytest_toolemu.sessions.store import RunStore

__version__ = "0.1.0"
"""The version of this package; the build reads it from here."""

_HOMES = {
    "core.case": ("Case", "ResolvedCase"),
    "core.case_loading": ("load_case",),
    "core.engine": ("Limits", "RunSpec", "run_case"),
    "errors": ("AgentStopped", "DocumentError", "InconclusiveError", "ModelError", "ToolemuError", "UsageError"),
    "core.run": ("Call", "Finding", "Observation", "Run", "Trajectory", "UserReply", "Verdict"),
    "core.run_file": ("load_run",),
    "sessions.store": ("RunStore",),
    "core.toolbox": ("BlockingToolbox", "Task", "Toolbox"),
    "core.toolkit": ("Toolkit", "benchmark_folder"),
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
    "ResolvedCase",
    "Run",
    "RunSpec",
    "RunStore",
    "Task",
    "Toolbox",
    "ToolemuError",
    "Toolkit",
    "Trajectory",
    "UsageError",
    "UserReply",
    "Verdict",
    "benchmark_folder",
    "load_case",
    "load_run",
    "run_case",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
