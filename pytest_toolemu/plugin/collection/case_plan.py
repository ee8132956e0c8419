"""The cases that a session plans to run, for its manifest: readers of the records can then tell what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pytest

from pytest_toolemu.analysis.run_summary import slices_of
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.plugin.collection.collect import CaseFile
from pytest_toolemu.plugin.collection.item_agents import agent_title, label_of
from pytest_toolemu.plugin.session import RESOLVED_CASE
from pytest_toolemu.sessions.manifest_records import PlannedCase, PlannedItem

if TYPE_CHECKING:
    from pytest_toolemu.analysis.run_summary import RunSummary


def case_plan(items: Iterable[pytest.Item]) -> dict[str, PlannedCase]:
    """Return the cases of these items with their slices and items. Python tests over cases may leave no record."""
    cases: dict[str, ResolvedCase] = {}
    items_of: dict[str, dict[str, PlannedItem]] = {}
    for item in items:
        if isinstance(item.parent, CaseFile):
            resolved = item.stash[RESOLVED_CASE]
            cases.setdefault(resolved.case.id, resolved)
            planned = PlannedItem(agent=agent_title(item, "")) if label_of(item) else PlannedItem()
            items_of.setdefault(resolved.case.id, {})[item.nodeid] = planned
    return {
        name: PlannedCase(
            slices=slices_of(resolved.case, resolved.toolkits),
            variant_of=resolved.case.variant_of or "",
            items=items_of[name],
        )
        for name, resolved in cases.items()
    }


def with_outcomes(
    plan: Mapping[str, PlannedCase], runs: Mapping[str, RunSummary], skipped: Iterable[str]
) -> dict[str, PlannedCase]:
    """Return the plan without skipped items. Items that left no record state the outcome and the reason."""
    skipped_ids = frozenset(skipped)
    return {
        name: case.with_items(
            {
                nodeid: _with_outcome(item, runs.get(nodeid))
                for nodeid, item in case.items.items()
                if nodeid not in skipped_ids
            }
        )
        for name, case in plan.items()
    }


def _with_outcome(item: PlannedItem, run: RunSummary | None) -> PlannedItem:
    if run is None or run.path:
        return item
    return PlannedItem(agent=run.agent, outcome=run.outcome or "broken", reason=run.reason)
