"""The summary of a run in its item's reports, which also carry it from xdist workers to the controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_toolemu.analysis.run_summary import RunSummary
    from pytest_toolemu.sessions.planned_records import PlannedCase

PROPERTY = "toolemu"
"""The user property that holds the run summary."""


def properties(pairs: Iterable[tuple[str, object]]) -> dict[str, Any] | None:
    """Return the run summary in a report's user properties as JSON data; None if there is none."""
    texts = [value for name, value in pairs if name == PROPERTY]
    return loads(str(texts[-1])) if texts else None


def record_path(item: pytest.Item) -> Path | None:
    """Return the path of the item's record; None if it has none."""
    run = properties(pair for pair in item.user_properties if pair[0] == PROPERTY)
    return Path(run["path"]) if run and run.get("path") else None


def run_summary_of(report: pytest.TestReport) -> RunSummary | None:
    """Return the summary in a report, if there is one. A case whose setup failed before it ran counts as broken."""
    content = properties(report.user_properties)
    # With gates, cases that failed or have no verdict are reported as skipped; so are those that are judged later.
    counted = any(hasattr(report, name) for name in ("wasxfail", "toolemu_undecided", "toolemu_unjudged"))
    skipped = report.skipped and not counted
    if content is None or (report.when != "call" and report.passed) or skipped:
        return None
    from pytest_toolemu.analysis.run_summary import RunSummary

    run = RunSummary.from_json({**content, "item": report.nodeid})
    failed = {"outcome": "broken", "reason": "setup failed; see the error above"}
    return run if run.outcome else run.model_copy(update=failed)


def summary_of_crash(nodeid: str, plan: Mapping[str, PlannedCase]) -> RunSummary:
    """Return a summary for a case whose worker died before it could report; ``plan`` is that of the session."""
    from pytest_toolemu.sessions.planned_cases import planned_run
    from pytest_toolemu.sessions.planned_records import PlannedCase

    name, _, label = nodeid.rpartition("::")[2].partition("[")
    return planned_run(
        name,
        plan.get(name, PlannedCase(items={})),
        nodeid,
        agent=label.removesuffix("]") or "custom agent",
        outcome="broken",
        reason="the worker process died while it ran this case",
    )


def status(report: pytest.TestReport) -> tuple[str, str, Any] | None:
    """Return category, letter, and word for a case that was not run, not now, or is judged later; else None."""
    if getattr(report, "toolemu_unjudged", False):
        from pytest_toolemu.core.verdict import UNJUDGED

        return UNJUDGED, "u", (UNJUDGED.upper(), {"yellow": True})
    words = {("call", "passed"): "PASSED", ("call", "failed"): "FAILED", ("setup", "failed"): "ERROR"}
    word = words.get((report.when, report.outcome))
    if word is None or hasattr(report, "wasxfail") or PROPERTY not in dict(report.user_properties):
        return None
    run = properties(report.user_properties) or {}
    from pytest_toolemu.analysis.run_summary import NOT_RUN

    if run.get("outcome") == NOT_RUN:
        return NOT_RUN, "N", (NOT_RUN.upper(), {"yellow": True})
    source = run.get("source", "live")
    if source == "live":
        return None
    category, letter = ("error", "E") if word == "ERROR" else (report.outcome, "." if report.passed else "F")
    return category, letter, f"{word} ({source})"
