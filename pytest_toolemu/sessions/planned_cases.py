"""Summaries of planned runs that left no record, so that they are counted as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.analysis.run_summary import NOT_RUN, RunSummary
from pytest_toolemu.sessions.store import RUNS, item_mark, mark_of

PLANNED: Final = "planned"
"""Key of a manifest: the cases that the session was to run, with their slices and items."""

_ENDED: Final = "the session ended before this case"

Planned = Mapping[str, Mapping[str, Any]]
"""Cases as a manifest stores them, by their ids."""


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
