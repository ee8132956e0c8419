"""The cases that a session is to run, for its manifest: whoever reads it later must miss those without a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from pytest_toolemu.analysis.run_row import RunRow, slice_keys
from pytest_toolemu.plugin.collection.collect import CaseFile
from pytest_toolemu.plugin.collection.variants import label_of
from pytest_toolemu.plugin.session import ITEM


def planned(items: Iterable[pytest.Item]) -> dict[str, dict[str, Any]]:
    """Return the cases of these items with their slices and items. Python tests over cases need not leave a record."""
    cases: dict[str, dict[str, Any]] = {}
    for item in items:
        if isinstance(item.parent, CaseFile):
            resolved_case = item.stash[ITEM]
            case = cases.setdefault(
                resolved_case.case.id, {**slice_keys(resolved_case.case, resolved_case.toolkits), "items": {}}
            )
            case["items"][item.nodeid] = {"agent": label} if (label := label_of(item)) else {}
    return cases


def with_outcomes(
    cases: Mapping[str, Mapping[str, Any]], rows: Mapping[str, RunRow], skipped: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Return the planned cases without skipped items. Items that left no record state the outcome and the reason."""
    left = frozenset(skipped)
    return {
        case: {
            **content,
            "items": {
                item: _item(about, rows.get(item)) for item, about in content["items"].items() if item not in left
            },
        }
        for case, content in cases.items()
    }


def _item(about: Mapping[str, str], row: RunRow | None) -> dict[str, str]:
    if row is None or row.path:
        return dict(about)
    return {"agent": row.agent, "outcome": row.outcome or "broken", "reason": row.reason}
