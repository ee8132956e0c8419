"""The cases that a session plans to run, for its manifest: readers of the records can then tell what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from pytest_toolemu.analysis.run_summary import RunSummary, slice_fields
from pytest_toolemu.plugin.collection.agent_configs import label_of
from pytest_toolemu.plugin.collection.collect import CaseFile
from pytest_toolemu.plugin.keys import RESOLVED_CASE


def case_plan(items: Iterable[pytest.Item]) -> dict[str, dict[str, Any]]:
    """Return the cases of these items with their slices and items. Python tests over cases may leave no record."""
    cases: dict[str, dict[str, Any]] = {}
    for item in items:
        if isinstance(item.parent, CaseFile):
            resolved = item.stash[RESOLVED_CASE]
            case = cases.setdefault(resolved.case.id, {**slice_fields(resolved.case, resolved.toolkits), "items": {}})
            case["items"][item.nodeid] = {"agent": label} if (label := label_of(item)) else {}
    return cases


def with_outcomes(
    plan: Mapping[str, Mapping[str, Any]], runs: Mapping[str, RunSummary], skipped: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Return the plan without skipped items. Items that left no record state the outcome and the reason."""
    skipped_ids = frozenset(skipped)
    return {
        case: {
            **content,
            "items": {
                nodeid: _with_outcome(item, runs.get(nodeid))
                for nodeid, item in content["items"].items()
                if nodeid not in skipped_ids
            },
        }
        for case, content in plan.items()
    }


def _with_outcome(item: Mapping[str, str], run: RunSummary | None) -> dict[str, str]:
    if run is None or run.path:
        return dict(item)
    return {"agent": run.agent, "outcome": run.outcome or "broken", "reason": run.reason}
