"""The state of a session in one process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from pytest_toolemu.settings import Settings

if TYPE_CHECKING:
    from pytest_toolemu.analysis.gates.gate_decision import Decision
    from pytest_toolemu.analysis.run_summary import RunSummary
    from pytest_toolemu.core.run import CassetteUse
    from pytest_toolemu.plugin.worker_input import WorkerInput
    from pytest_toolemu.sessions.manifest_records import PlannedCase, ShardManifest


@dataclass(frozen=True)
class TerminalNote:
    """A line for the end of the terminal summary."""

    text: str
    color: Literal["red", "yellow"] | None = None


@dataclass
class ToolemuSession:
    """Plain data that hooks collect and outputs read. What does work is built in ``services``."""

    config: pytest.Config
    settings: Settings
    name: str
    """The name of the session's folder, the same in all xdist workers."""
    started: float
    """When the session started, in seconds since the epoch; the same in all xdist workers."""
    worker_input: WorkerInput | None = None
    is_worker: bool = False
    """Whether this process is an xdist worker."""
    has_cases: bool = False
    nodeids: list[str] = field(default_factory=list)
    """The node IDs of all items, in their order, where this process leads the session."""
    run_summaries: dict[str, RunSummary] = field(default_factory=dict)
    """A summary of the run of each reported case, by node ID."""
    attempted: set[str] = field(default_factory=set)
    """Node ids of the items that have had a run. A further attempt is a rerun, which resumes nothing."""
    judged: dict[str, str] = field(default_factory=dict)
    """The paths of the records of runs with a verdict, by the node IDs of their items. A rerun gets the same run."""
    omitted_reruns: int = 0
    """How many reruns got the run of the first attempt, because that one has a verdict."""
    untested: set[str] = field(default_factory=set)
    """Node ids of cases that were skipped because no agent is configured."""
    skipped: set[str] = field(default_factory=set)
    """Node ids of all skipped cases."""
    overridden_agent: str = ""
    """Which cases do not get the agent that was named, since a fixture provides it; empty in an xdist controller."""
    case_plan: dict[str, PlannedCase] = field(default_factory=dict)
    """The cases that this session plans to run, by their ids; empty in an xdist controller."""
    repetition: str = ""
    """Why cases must not run: their items cannot be told apart. Empty if they can, and in an xdist controller."""
    decisions: list[Decision] = field(default_factory=list)
    notes: list[TerminalNote] = field(default_factory=list)
    """Lines about reports and about what agents left behind."""
    has_built_worlds: bool = False
    """Whether this process has asked a model to build worlds."""
    cassette_uses: list[CassetteUse] = field(default_factory=list)
    """How the worlds that this session built have used their cassettes."""
    shard_manifest: ShardManifest | None = None
    """What this shard has to run, and out of how much; None if the session is not a shard."""
    stopped_early: str = ""
    """Why this session has started no more cases although it could; empty if it has run all."""
    is_manifest_written: bool = False
    exit_status: int = int(pytest.ExitCode.INTERNAL_ERROR)

    @property
    def is_used(self) -> bool:
        """Whether the session has a setting of this plugin, or a case."""
        return bool(self.settings.chosen) or self.has_cases or bool(self.run_summaries)

    @property
    def late_messages_file(self) -> Path:
        """The file in which workers leave messages that they cannot report in any other way."""
        return self.folder / "late-reports.txt"

    @property
    def unreported_output_file(self) -> Path:
        """The file for output of cases that no item has reported. It need not exist."""
        return self.folder / "unreported-output.txt"

    @property
    def folder(self) -> Path:
        """The folder of this session's records. It need not exist yet."""
        return self.config.rootpath / str(self.settings.run_dir) / self.name
