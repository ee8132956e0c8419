"""The row of a case, as the reports of its item carry it, also from xdist workers to the controller."""

from __future__ import annotations

from collections.abc import Iterable
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_toolemu.analysis.run_row import RunRow

PROPERTY = "toolemu"
"""The user property in which a row of the summary travels."""


def properties(pairs: Iterable[tuple[str, object]]) -> dict[str, Any] | None:
    """The row in a report's user properties."""
    texts = [value for name, value in pairs if name == PROPERTY]
    return loads(str(texts[-1])) if texts else None


def record_path(item: pytest.Item) -> Path | None:
    """Where the item's run was stored."""
    row = properties(pair for pair in item.user_properties if pair[0] == PROPERTY)
    return Path(row["path"]) if row and row.get("path") else None


def row_of(report: pytest.TestReport) -> RunRow | None:
    """The row a report carries. A case whose set-up failed before it ran counts as broken."""
    content = properties(report.user_properties)
    # A gate has what failed, and what has no verdict, reported as skipped.
    skipped = report.skipped and not (hasattr(report, "wasxfail") or hasattr(report, "toolemu_undecided"))
    if content is None or (report.when != "call" and report.passed) or skipped:
        return None
    from pytest_toolemu.analysis.run_row import RunRow

    row = RunRow.from_json({**content, "item": report.nodeid})
    failed = {"outcome": "broken", "reason": "set-up failed; see the error above"}
    return row if row.outcome else row.model_copy(update=failed)


def status(report: pytest.TestReport) -> tuple[str, str, Any] | None:
    """Category, letter and word of a report about a case that was not run, or not run now; None for any other."""
    word = {("call", "passed"): "PASSED", ("call", "failed"): "FAILED", ("setup", "failed"): "ERROR"}
    shown = word.get((report.when, report.outcome))
    if shown is None or hasattr(report, "wasxfail") or PROPERTY not in dict(report.user_properties):
        return None
    row = properties(report.user_properties) or {}
    from pytest_toolemu.analysis.run_row import NOT_RUN

    if row.get("outcome") == NOT_RUN:
        return NOT_RUN, "N", (NOT_RUN.upper(), {"yellow": True})
    source = row.get("source", "live")
    if source == "live":
        return None
    category, letter = ("error", "E") if shown == "ERROR" else (report.outcome, "." if report.passed else "F")
    return category, letter, f"{shown} ({source})"
