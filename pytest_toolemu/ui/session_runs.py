"""The runs of a session in the order in which tables show them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pytest_toolemu.analysis.run_summary import OUTCOMES
from pytest_toolemu.analysis.slices import DIMENSIONS, Dimension, slice_values
from pytest_toolemu.sessions.live_session import is_running
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.planned_cases import missing_runs
from pytest_toolemu.sessions.reader import newest_evaluations
from pytest_toolemu.ui.run_index import IndexedRun, RunIndex


@dataclass(frozen=True)
class SessionRuns:
    """All runs of a session, the most important ones first, and why further records cannot be read."""

    runs: tuple[IndexedRun, ...]
    problems: tuple[str, ...] = ()

    @cached_property
    def agents(self) -> list[str]:
        """The names of all agents, sorted."""
        return sorted({run.summary.agent for run in self.runs})

    @cached_property
    def slices(self) -> dict[Dimension, list[str]]:
        """The values of each dimension that has several, the most frequent first."""
        values = {
            dimension: Counter(value for run in self.runs for value in slice_values(run.summary, dimension))
            for dimension in DIMENSIONS
        }
        return {dimension: list(dict(counts.most_common())) for dimension, counts in values.items() if len(counts) > 1}

    @cached_property
    def outcomes(self) -> dict[str, int]:
        """The number of runs of each outcome that occurs, the worst first."""
        counts = Counter(run.outcome for run in self.runs)
        return {name: counts[name] for name in OUTCOMES if counts[name]}


def runs_of_index(folder: Path, manifest: Manifest, index: RunIndex) -> SessionRuns:
    """Return the runs of a session whose records were read, with those that it planned and did not run."""
    runs = {folder / name: entry.run for name, entry in index.entries.items() if entry.run is not None}
    newest = [runs[path] for path in newest_evaluations(list(runs))]
    agents = {run.summary.agent for run in newest}
    manifests = [manifest] if manifest.is_plan_complete else []
    # Cases that a running session has not reached yet are not missing.
    unreached = () if is_running(folder) else missing_runs([folder], manifests, agents)
    missing = [IndexedRun(name="", summary=run) for run in unreached]
    problems = tuple(entry.problem for entry in index.entries.values() if entry.problem)
    return SessionRuns(tuple(sorted((*newest, *missing), key=lambda run: run.summary.urgency)), problems)
