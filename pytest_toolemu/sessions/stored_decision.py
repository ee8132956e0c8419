"""The decision on stored sessions by gates, for every command and page that shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_toolemu.analysis.calibration.calibration_file import Calibrations, judge_reliabilities, read_calibrations
from pytest_toolemu.analysis.gates.gate_decision import (
    Decision,
    decide_every_case,
    decisions_of_sources,
    distinct,
    read_gates_and_baselines,
    refuse_zero_thresholds,
)
from pytest_toolemu.analysis.run_summary import NOT_RUN, ReportedOutcome, RunSummary
from pytest_toolemu.core.run import UNJUDGED
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.identifiers import file_stem
from pytest_toolemu.formats.text import counted
from pytest_toolemu.sessions.manifest_records import Manifest, PlannedCase, PlannedItem
from pytest_toolemu.sessions.shard_assignment import absent, gaps
from pytest_toolemu.sessions.store import (
    RUNS,
    item_hash,
    item_hash_of,
    item_mark,
    manifest_of,
    mark_of,
    superseded_files,
)
from pytest_toolemu.settings.model_names import cascade_names
from pytest_toolemu.settings.option import is_gate_file
from pytest_toolemu.settings.option_table import OPTIONS, Settings, SettingValue


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
    and UsageError if shards are missing, if sessions have the same runs, if the sessions had different gates,
    or if no run could miss a threshold that a gate counts.
    """
    current = {path for folder in folders for path in folder.glob(RUNS)} - superseded_files(folders)
    if repeated := [name for name, count in Counter(path.name for path in current).items() if count > 1]:
        raise UsageError(
            f"the sessions have {counted(len(repeated), 'run')} in common, such as {min(repeated)}, of which only one "
            "could count; merge them with 'toolemu merge', or decide on one session"
        )
    manifests = completed(folders, [manifest_of(folder) for folder in folders])
    if missing_shards := absent(manifests):
        remedy = (
            "merge the shards with 'toolemu merge' (with --without for missing shards), and decide on the "
            "merged session"
        )
        raise UsageError(f"not the whole session: {'; '.join(missing_shards)}; {remedy}")
    root = Path()
    if not gates:
        used = {(manifest.list_setting("gate"), manifest.list_setting("calibration")) for manifest in manifests}
        if len(used) > 1:
            raise UsageError("the sessions had different gates or calibrations; name the gate with --gate")
        ((gates, names),) = used
        root = folder if (folder := Path(manifests[0].rootdir)).is_dir() else root
        calibration = calibration or [root / name for name in names]
    sources = read_gates_and_baselines(gates, root)
    for folder, manifest in zip(folders, manifests, strict=True):
        refuse_zero_thresholds(sources, manifest.settings, folder)
    stored, calibrations = stored_runs(), read_calibrations(calibration)
    complete = [manifest for manifest in manifests if manifest.is_plan_complete]
    missing = missing_runs(folders, complete, (run.agent for run in stored))
    count_unplaced = unplaced(complete)
    runs = [*stored, *missing]
    reliabilities = judge_reliabilities(calibrations)
    decisions = (
        distinct(decisions_of_sources(sources, runs, reliabilities, count_unplaced))
        if gates
        else decide_every_case(runs)
    )
    if not_run := sum(run.outcome == NOT_RUN for run in missing) + count_unplaced:
        text = f"{counted(not_run, 'case')} not run because the session ended early; run the rest with --toolemu-resume"
        decisions.insert(0, Decision("the session", "every case is run", "undecided", text))
    for folder, manifest in zip(folders, manifests, strict=True):
        if manifest.is_empty:
            text = f"{folder} has no session.json, so it is unknown which cases were planned; restore the file"
            decisions.insert(0, Decision("the session", "every case is run", "undecided", text))
    return StoredDecision(tuple(decisions), tuple(runs), tuple(gates), calibrations, tuple(gaps(manifests)))


_ENDED: Final = "the session ended before this case"
_TO_JUDGE: Final = "not judged yet; run the same 'toolemu judge' command again"


def missing_runs(folders: Sequence[Path], manifests: Sequence[Manifest], agents: Iterable[str]) -> list[RunSummary]:
    """Return a run summary for each planned item without a record in any of the folders.

    ``agents`` are those of the records. If the agent of an item was not known at collection, the item counts for
    the only agent, if there is just one.
    """
    names = sorted(set(agents))
    only_agent = names[0] if len(names) == 1 else ""
    stored = {mark_of(path.name) for folder in folders for path in folder.glob(RUNS)}
    return [
        planned_run(
            case,
            planned,
            item,
            agent=about.agent or only_agent or "?",
            outcome=about.outcome or NOT_RUN,
            reason=about.reason or _ENDED,
        )
        for case, planned in combined(manifests).items()
        for item, about in planned.items.items()
        if item_mark(case, item) not in stored
    ]


def planned_run(
    case: str,
    planned: PlannedCase,
    item: str = "",
    *,
    agent: str = "?",
    outcome: ReportedOutcome | None = None,
    reason: str = "",
) -> RunSummary:
    """Return the summary of a planned run that left no record: its slices, and what is known of it."""
    slices = planned.model_dump(exclude={"items"})
    return RunSummary(case=case, item=item, agent=agent, outcome=outcome, reason=reason, **slices)


def combined(manifests: Iterable[Manifest]) -> dict[str, PlannedCase]:
    """Return the planned cases of several sessions. For an item that several planned, the last one counts."""
    cases: dict[str, PlannedCase] = {}
    for manifest in manifests:
        for case, planned in manifest.planned.items():
            cases[case] = planned.with_items({**cases[case].items, **planned.items} if case in cases else planned.items)
    return cases


def left_out(folders: Sequence[Path], manifests: Sequence[Manifest]) -> dict[str, PlannedCase]:
    """Return the planned cases with only the items that have no record in any of the folders."""
    missing = {run.item for run in missing_runs(folders, manifests, ())}
    remaining = {
        case: planned.with_items({item: about for item, about in planned.items.items() if item in missing})
        for case, planned in combined(manifests).items()
    }
    return {case: planned for case, planned in remaining.items() if planned.items}


def completed(folders: Sequence[Path], manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return the manifests. None says that its session stopped early if all that they planned has a record."""
    if not any(manifest.stopped_early for manifest in manifests) or left_out(folders, manifests):
        return list(manifests)
    return [manifest.model_copy(update={"stopped_early": ""}) for manifest in manifests]


def to_judge(files: Iterable[Path], manifests: Iterable[Manifest]) -> dict[str, PlannedCase]:
    """Return the runs in these files as planned items of a session that judges them, unjudged as long as it has not."""
    cases = combined(manifests)
    stems = {file_stem(case): case for case in cases}
    agents = {
        (case, item_hash(item)): about.agent for case, planned in cases.items() for item, about in planned.items.items()
    }
    items: dict[str, dict[str, PlannedItem]] = {}
    for file in files:
        stem = file.stem.rpartition("--")[0]
        case = stems.get(stem, stem)
        agent = agents.get((case, item_hash_of(file.name)), "")
        items.setdefault(case, {})[file.stem] = PlannedItem(agent=agent, outcome=UNJUDGED, reason=_TO_JUDGE)
    unplanned = PlannedCase(items={})
    return {case: cases.get(case, unplanned).with_items(of_case) for case, of_case in items.items()}


def unplaced(manifests: Iterable[Manifest]) -> int:
    """Return the number of missing runs that the sessions counted but did not describe."""
    total = 0
    for manifest in manifests:
        items = [about for planned in manifest.planned.values() for about in planned.items.values()]
        total += max(0, manifest.not_run - sum(about.outcome == NOT_RUN for about in items))
    return total


_JUDGING: Final = ("evaluator", "helpfulness", "checks")
# A cascade asks its strong judge if the cheap one is close to the threshold of the session.
_THRESHOLDS: Final = ("min-safety", "min-helpfulness")
_DECIDING: Final = ("gate", "calibration")
_KEYS: Final = {option.name: option.key for option in OPTIONS}


def judging_options(manifests: Sequence[Manifest]) -> dict[str, SettingValue]:
    """Return the options of ``toolemu judge`` that these sessions imply, by their keys, without defaults.

    All sessions imply their thresholds and how they combine judges, and those that left judging for later also how to
    judge. Sessions that differ imply nothing.
    """
    chosen = {**_equal(manifests, (*_THRESHOLDS, "combine")), **_common(manifests, _JUDGING)}
    return {_KEYS[name]: value for name, (value, source) in chosen.items() if source != "default"}


def refuse_different_thresholds(settings: Settings, manifests: Sequence[Manifest]) -> None:
    """Raise UsageError if an evaluator is a cascade and the thresholds of the sessions differ, on which it depends."""
    cascades = [name for name in settings.evaluator if cascade_names(name)]
    used = {tuple(manifest.setting(name) for name in _THRESHOLDS) for manifest in manifests}
    if cascades and len(used) > 1:
        listed = "; ".join(sorted(f"safety {safety}, helpfulness {helpfulness}" for safety, helpfulness in used))
        raise UsageError(
            f"the cascade '{cascades[0]}' depends on the thresholds, but those of the sessions differ ({listed}); "
            "judge the sessions one by one"
        )


def deciding_settings(manifests: Sequence[Manifest]) -> dict[str, tuple[SettingValue, str]]:
    """Return the settings of gates and calibrations that these sessions leave to ``toolemu gate``.

    Files are named by absolute paths, as the new records are in another folder.
    """
    root = Path(manifests[0].rootdir) if manifests else Path()
    return {
        name: (tuple(_from_root(root, name, text) for text in manifests[0].list_setting(name)), source)
        for name, (_, source) in _common(manifests, _DECIDING).items()
    }


def _common(manifests: Sequence[Manifest], names: Sequence[str]) -> dict[str, tuple[SettingValue, str]]:
    """Return the settings with these names, with their sources, if all sessions left judging for later and agree."""
    if not all(manifest.setting("judge-later") for manifest in manifests):
        return {}
    return _equal(manifests, names)


def _equal(manifests: Sequence[Manifest], names: Sequence[str]) -> dict[str, tuple[SettingValue, str]]:
    """Return the settings with these names, with their sources, if all sessions agree."""
    if not manifests:
        return {}
    first = {name: setting for name in names if (setting := manifests[0].settings.get(name))}
    if any({name: manifest.settings.get(name) for name in first} != first for manifest in manifests):
        return {}
    return first


def _from_root(root: Path, name: str, text: str) -> str:
    """Return a file below the root of the session as an absolute path, and an expression unchanged."""
    if name == "gate" and not is_gate_file(text):
        return text
    path = root / text
    return str(path.absolute()) if path.is_file() else text
