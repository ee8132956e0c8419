"""The state of a session in one process, and what its modules share: keys, errors, and the input of workers."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.case_names import CASE_SUFFIXES
from pytest_toolemu.settings.option_table import Settings

if TYPE_CHECKING:
    from pytest_toolemu.analysis.calibration.judge_calibration import JudgeCalibration
    from pytest_toolemu.analysis.gates.gate_decision import Decision
    from pytest_toolemu.analysis.run_summary import RunSummary
    from pytest_toolemu.core.case import Edition, ResolvedCase
    from pytest_toolemu.core.case_rules import Trap
    from pytest_toolemu.core.run import CassetteUse
    from pytest_toolemu.emulators.world_builder import PlannedWorld
    from pytest_toolemu.models.cassette_files import CassetteDirectory
    from pytest_toolemu.models.cassette_recorder import CassetteReport
    from pytest_toolemu.models.pricing import Prices
    from pytest_toolemu.models.vllm_servers import ServerFleet
    from pytest_toolemu.sessions.manifest_records import PlannedCase, ShardManifest
    from pytest_toolemu.sessions.resume import ResumableSessions
    from pytest_toolemu.sessions.store import RunStore


@dataclass(frozen=True)
class TerminalNote:
    """A line for the end of the terminal summary."""

    text: str
    color: Literal["red", "yellow"] | None = None


@dataclass(frozen=True)
class WorkerInput:
    """The session that a worker belongs to.

    ``channel`` leads to the coordinator in the controller. With ``--dist=each`` there is none: no case can run.
    """

    session_name: str
    started: float
    """When the session started, in seconds since the epoch."""
    resumed_folders: tuple[str, ...] = ()
    served_endpoints: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """For each model that the session serves itself: the fields of its ``ServedEndpoint``."""
    terminal_width: int | None = None
    channel: Any = None

    @classmethod
    def received(cls, config: pytest.Config) -> WorkerInput | None:
        """Return what this xdist worker has received; None in any other process."""
        encoded = getattr(config, "workerinput", {}).get(_KEY)
        return cls(**encoded) if encoded else None


@dataclass
class ToolemuSession:
    """What hooks collect and outputs read, and the files of the session, each opened on first use."""

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
    drafts: list[Path] = field(default_factory=list)
    """The drafts that were not collected."""
    case_files: dict[str, Path] = field(default_factory=dict)
    """The file of each collected case, by its ID."""
    case_plan: dict[str, PlannedCase] = field(default_factory=dict)
    """The cases that this session plans to run, by their ids; empty in an xdist controller."""
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
    servers: ServerFleet | None = None
    """The vLLM servers that this process starts; None for none."""
    is_manifest_written: bool = False
    exit_status: int = int(pytest.ExitCode.INTERNAL_ERROR)

    @property
    def is_used(self) -> bool:
        """Whether the session has a setting of this plugin, or a case."""
        return bool(self.settings.chosen) or self.has_cases or bool(self.run_summaries)

    @property
    def has_no_cases(self) -> bool:
        """Whether an agent is named but no test was collected, and no case was found, not even a draft."""
        is_empty = self.exit_status == pytest.ExitCode.NO_TESTS_COLLECTED
        return is_empty and bool(self.settings.agent) and not (self.case_files or self.drafts)

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

    @functools.cached_property
    def store(self) -> RunStore:
        """The store of this session's records; creates the folder. Raise UsageError if that fails."""
        from pytest_toolemu.sessions.store import RunStore

        try:
            return RunStore.create(self.folder.parent, self.name, private=self.settings.run_dir_mode == "private")
        except OSError as error:
            raise unwritable_records(self.folder, error) from None

    @functools.cached_property
    def resumable_sessions(self) -> ResumableSessions | None:
        """The sessions whose runs are resumed; None for none. Raise UsageError for a folder that is not a session's."""
        if self.settings.resume is None:
            return None
        from pytest_toolemu.sessions.resume import ResumableSessions, resumable_sessions

        if self.worker_input is not None:
            return ResumableSessions.of(map(Path, self.worker_input.resumed_folders), self.settings)
        return resumable_sessions(self.folder.parent, self._roots, self.settings)

    @functools.cached_property
    def completed_session(self) -> Path | None:
        """The session that had stopped early and is resumed, so that this one runs all cases; None for none."""
        return self.resumable_sessions.stopped_early if self.resumable_sessions else None

    @property
    def permitted_error(self) -> float | None:
        """The error with which this session may stop when its gates are decided; None if it runs all cases."""
        error = self.settings.stop_when_decided
        return error if error is None or self.completed_session is None else None

    @functools.cached_property
    def cassettes(self) -> CassetteDirectory | None:
        """The cassettes that are replayed or recorded; None if neither is."""
        if self.settings.recording is None:
            return None
        from pytest_toolemu.models.cassette_files import CassetteDirectory

        mode, folder = self.settings.recording
        return CassetteDirectory(self.config.rootpath / folder, mode)

    @property
    def _roots(self) -> tuple[Path, Path]:
        """The folders to which the path of a file in the settings may be relative."""
        return self.config.invocation_params.dir, self.config.rootpath

    def cassette_report(self) -> CassetteReport | None:
        """Return what all processes have used of the cassettes so far; None if there are no cassettes."""
        if self.cassettes is None:
            return None
        from pytest_toolemu.models.cassette_recorder import report_on

        uses = [*(run.recording for run in self.run_summaries.values() if run.recording), *self.cassette_uses]
        return report_on(self.cassettes, uses, self.config.rootpath)

    @functools.cached_property
    def prices(self) -> Prices:
        """The prices of models. Raise UsageError for a price file that is wrong."""
        from pytest_toolemu.models.pricing import Prices

        name = self.settings.prices
        paths = [root / name for root in self._roots] if name else [None]
        # Path.is_file raises an error if a name is too long.
        path = next((path for path in paths if path and os.path.isfile(path)), paths[-1])  # noqa: PTH113
        try:
            return Prices.read(path)
        except DocumentError as error:
            raise UsageError(str(error)) from None

    @functools.cached_property
    def calibrations(self) -> dict[str, JudgeCalibration]:
        """The calibrations of judges, by the judges' names. Raise UsageError for a file that is wrong."""
        paths = [self.config.rootpath / name for name in self.settings.calibration]
        if not paths:
            return {}
        from pytest_toolemu.analysis.calibration.calibration_file import read_calibrations

        return read_calibrations(paths)

    @functools.cached_property
    def dataset_editions(self) -> tuple[Edition, ...]:
        """The datasets that hold the collected paths, or lie directly below them. Raise UsageError for a broken one."""
        from pytest_toolemu.core.case import datasets_near, edition

        paths = [self._roots[0] / argument.partition("::")[0] for argument in self.config.args]
        try:
            datasets = dict.fromkeys(dataset for path in paths for dataset in datasets_near(path))
            return tuple(edition(path) for path in datasets)
        except DocumentError as error:
            raise UsageError(str(error)) from None


def unwritable_records(folder: Path, error: OSError) -> UsageError:
    """Return the error for a folder of records that cannot be created or written."""
    remedy = "name another folder with --toolemu-run-dir"
    return UsageError(f"records cannot be written to {folder.parent}: {error.strerror}; {remedy}")


REPORTED: pytest.StashKey[set[str]] = pytest.StashKey()
"""The errors of toolkits that a collection error has shown."""
SESSION: pytest.StashKey[ToolemuSession] = pytest.StashKey()
"""On the config: the state of the session in this process."""

RESOLVED_CASE: pytest.StashKey[ResolvedCase] = pytest.StashKey()
"""On every item that runs a case: the case with its toolkits."""

TRAP: pytest.StashKey[Trap] = pytest.StashKey()
"""On an item whose case is in a built world: the trap in it, which only the record of the run contains."""

PLANNED_WORLD: pytest.StashKey[PlannedWorld | None] = pytest.StashKey()
"""On an item whose world did not exist at collection. Until it is built, the case of the item has its own rows."""

RUN_TIMES: pytest.StashKey[tuple[float, float]] = pytest.StashKey()
"""On an item whose case has run: its start, in seconds since the epoch, and its duration in seconds."""

INI_MARKS: pytest.StashKey[tuple[str, ...]] = pytest.StashKey()
"""On the config: the lines of the marks that the project's own ini file declares."""


LEFT_TO_GATE: Final = "left to the gate"
"""The beginning of the reason of a case that is reported in such a way that it does not fail the session."""


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


DIST_EACH: Final = (
    "with --dist=each, every worker would run the same cases; use --dist=load, and repeat cases with --toolemu-trials"
)

_KEY: Final = "toolemu"
"""The key in xdist's ``workerinput``."""


def is_case_file(nodeid: str) -> bool:
    """Return whether a node ID is that of an item of a case file."""
    return nodeid.partition("::")[0].endswith(CASE_SUFFIXES)


def hand_over(node: Any, worker_input: WorkerInput) -> None:
    """Add the input to what xdist sends to the worker of ``node``."""
    node.workerinput[_KEY] = dict(vars(worker_input))  # builtin types, which xdist can send; a channel travels as it is


def relative_path(path: Path) -> str:
    """Return a path relative to the working directory, as a person would type it."""
    try:
        return os.path.relpath(path)
    except (ValueError, OSError):  # on another drive; or an agent has removed the working directory
        return str(path)
