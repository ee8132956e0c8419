"""The summary of a run in its item's reports, which also carry it from xdist workers to the controller."""

from __future__ import annotations

import re
from collections.abc import Iterable
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_toolemu.plugin.session import RESOLVED_CASE, CaseError

if TYPE_CHECKING:
    from pytest_toolemu.analysis.run_summary import RunSummary
    from pytest_toolemu.errors import NotRunError
    from pytest_toolemu.models.pricing import Prices
    from pytest_toolemu.sessions.store import RunStore

# What several trials add to the label of an item.
_TRIAL: Final = re.compile(r"-trial([0-9]+)$")

PROPERTY = "toolemu"
"""The user property that holds the run summary."""


def properties(pairs: Iterable[tuple[str, object]]) -> dict[str, Any] | None:
    """Return the run summary in a report's user properties as JSON data; None if there is none."""
    texts = [value for name, value in pairs if name == PROPERTY]
    return loads(str(texts[-1])) if texts else None


def attach_summary(item: pytest.Item, run: dict[str, Any]) -> None:
    """Attach the run's summary to the item's reports, which carry it to the process that writes the reports."""
    item.user_properties[:] = [pair for pair in item.user_properties if pair[0] != PROPERTY]
    item.user_properties.append((PROPERTY, dumps(run)))


def not_run(item: pytest.Item, error: NotRunError) -> CaseError:
    """Return the error of an item without a world, and attach a run summary that says so to its reports."""
    from pytest_toolemu.analysis.run_summary import NOT_RUN
    from pytest_toolemu.plugin.collection.item_agents import params_of

    known = {
        "case": item.stash[RESOLVED_CASE].case.id,
        "agent": "custom agent",
        **(properties(item.user_properties) or {}),
    }
    trial = params_of(item).get("toolemu_trial", 1)
    attach_summary(item, {**known, "trial": trial, "outcome": NOT_RUN, "reason": str(error)})
    return CaseError(f"{NOT_RUN}: {error}")


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


def summary_of_crash(nodeid: str, store: RunStore, prices: Prices) -> RunSummary:
    """Return a summary for a case whose worker died before it could report.

    It may have stored the run before. Then that run counts, as it does for all who read the session later.
    """
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.sessions.manifest_records import PlannedCase, PlannedItem
    from pytest_toolemu.sessions.reader import summarize_run
    from pytest_toolemu.sessions.store import item_mark, mark_of
    from pytest_toolemu.sessions.stored_decision import planned_run
    from pytest_toolemu.settings import NOACT, REFERENCE

    name, _, label = nodeid.rpartition("::")[2].partition("[")
    mark = item_mark(name, nodeid)
    for path in store.paths():
        if mark_of(path.name) == mark:
            return summarize_run(load_run(path), str(path), prices).model_copy(update={"item": nodeid})
    planned = store.manifest().planned.get(name, PlannedCase(items={}))
    label = label.removesuffix("]")
    trial = _TRIAL.search(label)
    agent = planned.items.get(nodeid, PlannedItem()).agent or _TRIAL.sub("", label) or "custom agent"
    run = planned_run(
        name,
        planned,
        nodeid,
        agent=agent,
        outcome="broken",
        reason="the worker process died while it ran this case",
    )
    # What its requests have cost is lost with it.
    unseen = () if agent == NOACT or agent.startswith(REFERENCE) else ("agent",)
    return run.model_copy(update={"trial": int(trial[1]) if trial else 1, "unseen": unseen})


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
