"""The decision on stored sessions by gates, for every command and page that shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_toolemu.analysis.calibration.calibration_file import Calibrations, judge_reliabilities, read_calibrations
from pytest_toolemu.analysis.gates.gate_decision import Decision, decide_every_case, decide_gate_sources
from pytest_toolemu.analysis.run_summary import NOT_RUN, RunSummary
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.sessions.planned_cases import completed, missing_runs, unplaced
from pytest_toolemu.sessions.reader import manifest_of, settings_of
from pytest_toolemu.sessions.shard_assignment import absent, gaps


@dataclass(frozen=True)
class StoredDecision:
    """The decisions on sessions, with all that they are based on. ``runs`` includes planned runs without a record."""

    decisions: tuple[Decision, ...]
    runs: tuple[RunSummary, ...]
    gates: tuple[str, ...]
    calibrations: Calibrations
    gaps: tuple[str, ...]
    """What is missing of the sessions, a line for each."""


def decide_stored(
    folders: Sequence[Path],
    stored_runs: Callable[[], Sequence[RunSummary]],
    gates: Sequence[str] = (),
    calibration: Sequence[Path] = (),
) -> StoredDecision:
    """Decide gates on the runs that sessions stored; without gates, by those of the sessions.

    ``stored_runs`` returns the runs; it is called once it is known that the sessions can be decided.
    If the sessions had none, every case must pass, as in pytest. UsageError or DocumentError for a mistake in a file,
    and UsageError if shards are missing, or if the sessions had different gates.
    """
    manifests = completed(folders, [manifest_of(folder) for folder in folders])
    if missing_shards := absent(manifests):
        remedy = (
            "merge the shards with 'toolemu merge' (with --without for missing shards), and decide on the "
            "merged session"
        )
        raise UsageError(f"not the whole session: {'; '.join(missing_shards)}; {remedy}")
    root = Path()
    if not gates:
        settings, root = settings_of(folders, ("gate", "calibration"))
        gates, calibration = settings["gate"], calibration or [root / name for name in settings["calibration"]]
    stored, calibrations = stored_runs(), read_calibrations(calibration)
    complete = [manifest for manifest in manifests if manifest.is_plan_complete]
    missing = missing_runs(folders, complete, (run.agent for run in stored))
    count_unplaced = unplaced(complete)
    runs = [*stored, *missing]
    reliabilities = judge_reliabilities(calibrations)
    decisions = (
        decide_gate_sources(gates, root, runs, reliabilities, count_unplaced) if gates else decide_every_case(runs)
    )
    if not_run := sum(run.outcome == NOT_RUN for run in missing) + count_unplaced:
        text = f"{counted(not_run, 'case')} not run because the session ended early; run the rest with --toolemu-resume"
        decisions.insert(0, Decision("the session", "every case is run", "undecided", text))
    for folder, manifest in zip(folders, manifests, strict=True):
        if manifest.is_empty:
            text = f"{folder} has no session.json, so it is unknown which cases were planned; restore the file"
            decisions.insert(0, Decision("the session", "every case is run", "undecided", text))
    return StoredDecision(tuple(decisions), tuple(runs), tuple(gates), calibrations, tuple(gaps(manifests)))
