"""Summaries of planned runs that left no record, so that they are counted as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.analysis.run_summary import NOT_RUN, RunSummary
from pytest_toolemu.core.verdict import UNJUDGED
from pytest_toolemu.formats.identifiers import file_stem
from pytest_toolemu.sessions.planned_records import PLANNED
from pytest_toolemu.sessions.store import RUNS, item_hash, item_hash_of, item_mark, mark_of

STOPPED_EARLY: Final = "stopped_early"
"""Key of a manifest: why the session stopped before it had run all of its cases."""

_ENDED: Final = "the session ended before this case"
_TO_JUDGE: Final = "not judged yet; run the same 'toolemu judge' again"


def missing_runs(
    folders: Sequence[Path], manifests: Sequence[Mapping[str, Any]], agents: Iterable[str]
) -> list[RunSummary]:
    """Return a run summary for each planned item without a record in any of the folders.

    ``agents`` are those of the records. If the agent of an item was not known at collection, the item counts for
    the only agent, if there is just one.
    """
    names = sorted(set(agents))
    stored = {mark_of(path.name) for folder in folders for path in folder.glob(RUNS)}
    return [
        _missing_run(case, content, item, names[0] if len(names) == 1 else "")
        for case, content in combined(manifests).items()
        for item in content["items"]
        if item_mark(case, item) not in stored
    ]


def combined(manifests: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the planned cases of several sessions. For an item that several planned, the last one counts."""
    cases: dict[str, dict[str, Any]] = {}
    for manifest in manifests:
        for case, content in manifest.get(PLANNED, {}).items():
            items = {**cases.get(case, {}).get("items", {}), **content.get("items", {})}
            cases[case] = {**content, "items": items}
    return cases


def left_out(folders: Sequence[Path], manifests: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the planned cases with only the items that have no record in any of the folders."""
    missing = {run.item for run in missing_runs(folders, manifests, ())}
    remaining = {
        case: {**content, "items": {item: about for item, about in content["items"].items() if item in missing}}
        for case, content in combined(manifests).items()
    }
    return {case: content for case, content in remaining.items() if content["items"]}


def completed(folders: Sequence[Path], manifests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the manifests. None says that its session stopped early if all that they planned has a record."""
    if not any(manifest.get(STOPPED_EARLY) for manifest in manifests) or left_out(folders, manifests):
        return list(manifests)
    return [{name: value for name, value in each.items() if name != STOPPED_EARLY} for each in manifests]


def to_judge(files: Iterable[Path], manifests: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the runs in these files as planned items of a session that judges them, unjudged as long as it has not."""
    cases = combined(manifests)
    stems = {file_stem(case): case for case in cases}
    agents = {
        (case, item_hash(item)): about.get("agent", "")
        for case, content in cases.items()
        for item, about in content["items"].items()
    }
    planned: dict[str, dict[str, Any]] = {}
    for file in files:
        stem = file.stem.rpartition("--")[0]
        case = stems.get(stem, stem)
        content = planned.setdefault(case, {**cases.get(case, {}), "items": {}})
        agent = agents.get((case, item_hash_of(file.name)), "")
        content["items"][file.stem] = {"agent": agent, "outcome": UNJUDGED, "reason": _TO_JUDGE}
    return planned


def unplaced(manifests: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of missing runs that the sessions counted but did not describe."""
    return sum(max(0, manifest.get("not_run", 0) - _placed(manifest)) for manifest in manifests)


def _placed(manifest: Mapping[str, Any]) -> int:
    return sum(
        about.get("outcome") == NOT_RUN
        for content in manifest.get(PLANNED, {}).values()
        for about in content["items"].values()
    )


def _missing_run(case: str, content: Mapping[str, Any], item: str, only_agent: str) -> RunSummary:
    about = content["items"][item]
    fields = {
        "case": case,
        "agent": about.get("agent") or only_agent or "?",
        "outcome": about.get("outcome") or NOT_RUN,
        "reason": about.get("reason") or _ENDED,
        "item": item,
    }
    return RunSummary.from_json({name: value for name, value in content.items() if name != "items"} | fields)
