"""The state of a session in one process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from pytest_toolemu.settings import Settings

if TYPE_CHECKING:
    from pytest_toolemu.analysis.gates.gate_decision import Decision
    from pytest_toolemu.analysis.run_summary import RunSummary
    from pytest_toolemu.core.case import ResolvedCase
    from pytest_toolemu.core.references import Trap
    from pytest_toolemu.core.run import CassetteUse
    from pytest_toolemu.emulators.world_builder import PlannedWorld
    from pytest_toolemu.sessions.manifest_records import PlannedCase, ShardManifest


@dataclass(frozen=True)
class TerminalNote:
    """A line for the end of the terminal summary."""

    text: str
    color: Literal["red", "yellow"] | None = None


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


SESSION: pytest.StashKey[ToolemuSession] = pytest.StashKey()
"""On the config: the state of the session in this process."""

RESOLVED_CASE: pytest.StashKey[ResolvedCase] = pytest.StashKey()
"""On every item that runs a case: the case with its toolkits."""

TRAP: pytest.StashKey[Trap] = pytest.StashKey()
"""On an item whose case is in a built world: the trap in it, which only the record of the run contains."""

PLANNED_WORLD: pytest.StashKey[PlannedWorld] = pytest.StashKey()
"""On an item whose world did not exist at collection. Until it is built, the case of the item has its own rows."""

RUN_TIMES: pytest.StashKey[tuple[float, float]] = pytest.StashKey()
"""On an item whose case has run: its start, in seconds since the epoch, and its duration in seconds."""

INI_MARKS: pytest.StashKey[tuple[str, ...]] = pytest.StashKey()
"""On the config: the lines of the marks that the project's own ini file declares."""


class CaseError(Exception):
    """A case has no verdict, for a reason that is not its agent's behavior. Shown as its text, without a traceback."""


class CaseUnjudged(pytest.skip.Exception):  # type: ignore[misc, name-defined]
    """A case has no verdict because judging is postponed. A skip, not an error, for other plugins as well."""


class CaseFailure(pytest.fail.Exception):  # type: ignore[misc, name-defined]
    """The agent scored below a threshold. A failure, not an error; shown as its text, without a traceback.

    ``scores`` compares the scores with their thresholds in one line; ``headline`` adds the worst finding.
    """

    def __init__(self, text: str, scores: str, headline: str) -> None:
        super().__init__(text, pytrace=False)
        self.scores = scores
        self.headline = headline


def headline_of(error: BaseException) -> str:
    """Return an error in one line: its own headline, the last line of a traceback, or its first line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return str(getattr(error, "headline", lines[-1] if lines[0].startswith("Traceback (") else lines[0]))


_KEY: Final = "toolemu"
"""The key in xdist's ``workerinput``."""


def worker_count(config: pytest.Config) -> int:
    """Return how many workers run every item of this xdist worker; 1 in any other process."""
    worker_input = WorkerInput.received(config)
    if worker_input is None or worker_input.channel is not None:
        return 1
    return int(getattr(config, "workerinput", {}).get("workercount", 1))


def hand_over(node: Any, worker_input: WorkerInput) -> None:
    """Add the input to what xdist sends to the worker of ``node``."""
    node.workerinput[_KEY] = worker_input.encode()


def relative_path(path: Path) -> str:
    """Return a path relative to the working directory, as a person would type it."""
    try:
        return os.path.relpath(path)
    except (ValueError, OSError):  # on another drive; or an agent has removed the working directory
        return str(path)
