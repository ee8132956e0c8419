"""Summaries of planned runs that left no record, so that they are counted as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from pytest_toolemu.analysis.run_summary import NOT_RUN, ReportedOutcome, RunSummary
from pytest_toolemu.core.verdict import UNJUDGED
from pytest_toolemu.formats.identifiers import file_stem
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.planned_records import PlannedCase, PlannedItem
from pytest_toolemu.sessions.store import RUNS, item_hash, item_hash_of, item_mark, mark_of

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
    return sum(max(0, manifest.not_run - _placed(manifest)) for manifest in manifests)


def _placed(manifest: Manifest) -> int:
    return sum(about.outcome == NOT_RUN for planned in manifest.planned.values() for about in planned.items.values())
