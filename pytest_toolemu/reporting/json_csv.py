"""Runs as rows for other programs: CSV, and JSON with the summaries beside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from json import dumps
from typing import Any, Final

from pytest_toolemu.analysis.run_row import DIMENSIONS, Dimension
from pytest_toolemu.analysis.summary import total_costs
from pytest_toolemu.formats.redaction import Redactor, redact_json, secrets
from pytest_toolemu.models.pricing import Cost
from pytest_toolemu.reporting import report_view
from pytest_toolemu.reporting.report_data import ReportData, RunView
from pytest_toolemu.reporting.summary_metrics import csv_cell, estimate_values, summary_metrics
from pytest_toolemu.reporting.transcript import shorten

VERSION: Final = 2
"""Of the JSON report. A member that changes its meaning raises it; a new one does not."""

_LONG: Final = 10_000
"""Characters of one text; spreadsheets take 32,767 in a cell."""

Value = str | int | float | None


def _found(account: RunView) -> str:
    return shorten(account.findings[0].outcome, _LONG) if account.findings else ""


def _cost(account: RunView) -> Cost:
    return sum(total_costs([account.row]).values(), Cost())


COLUMNS: Final[dict[str, tuple[str, Callable[[RunView], Value]]]] = {
    "case": ("id of the case", lambda a: a.row.case),
    "title": ("title of the case", lambda a: a.title),
    "agent": ("what the session calls the agent", lambda a: a.row.agent),
    "trial": ("from 1", lambda a: a.row.trial),
    "outcome": ("passed, failed, inconclusive, broken or not run", lambda a: a.row.outcome or "broken"),
    "safety": ("worst score of the evaluators, 0-3; empty without one", lambda a: a.row.safety),
    "helpfulness": ("likewise", lambda a: a.row.helpfulness),
    "unsafe": ("1 for a safety score below 2, else 0; empty without one", lambda a: _flag(a.row.unsafe)),
    "stop": ("why the agent ended: final, quit, step_limit, token_limit, timeout, error", lambda a: a.row.stop),
    "reason": ("why it failed, or has no verdict", lambda a: a.row.reason),
    "broken_by": (
        "whose exception broke it: agent (its own code), provider or harness; empty unless broken",
        lambda a: a.row.origin,
    ),
    "finding": ("what the first evaluator to find something found", _found),
    "risk_types": ("separated by spaces", lambda a: " ".join(a.row.risk_types)),
    "toolkits": ("separated by spaces, the primary one first", lambda a: " ".join(a.row.toolkits)),
    "category": ("of the primary toolkit", lambda a: a.row.category),
    "severity": ("of the worst outcome", lambda a: a.row.severity),
    "gap": ("what the instruction leaves out: task, safety, both, none", lambda a: a.row.gap),
    "split": ("public or heldout", lambda a: a.row.split),
    "tokens": (
        "of all roles; empty where nothing is known, a lower bound where usage_unknown is above 0 or unseen not empty",
        lambda a: a.row.known_tokens,
    ),
    "usage_unknown": ("exchanges for which no usage was reported", lambda a: a.row.usage_unknown),
    "schema_fallbacks": (
        "replies whose schema was not sent as structured output",
        lambda a: sum(count for _, _, count in a.row.fallbacks),
    ),
    "unseen": (
        "roles whose requests were not recorded (custom parts, imported runs), separated by spaces",
        lambda a: " ".join(a.row.unseen),
    ),
    "cost_usd": (
        "of all roles; empty where nothing is known, a lower bound where cost_unknown is above 0 or unseen not empty",
        lambda a: _cost(a).known_usd,
    ),
    "cost_unknown": ("requests whose cost is not known", lambda a: _cost(a).unknown),
    "seconds": ("from the first call to the last verdict", lambda a: round(a.row.seconds, 3)),
    "emulator": ("with a hash of all it consists of", lambda a: str(a.row.emulator or "")),
    "judges": ("likewise, separated by '; '", lambda a: "; ".join(map(str, a.row.judges))),
    "case_hash": ("of the case and its toolkits", lambda a: a.row.case_hash),
    "record": ("the file with everything", lambda a: a.row.path),
}
"""The columns of a CSV report and the members of a run in a JSON report: name, meaning, value."""


def csv_text(report: ReportData) -> str:
    """One line a run, below a line of names."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    known = secrets()
    for account in report.accounts:
        writer.writerow([_cell(value(account), known) for _, value in COLUMNS.values()])
    return file.getvalue()


def json_text(report: ReportData) -> str:
    """Return the summaries of all agents with intervals, the decisions of gates, and an object for each run."""
    content = {
        "version": VERSION,
        "made": report.made,
        "sessions": [manifest.get("session") for manifest in report.manifests],
        "missing": report.gaps,
        "rechecked": sum(bool(row.rechecked) for row in report.rows),
        "dataset": str(report.cases),
        "agents": [_agent(agent) for agent in report_view.agent_views(report)],
        "slices": [_slices(report, dimension) for dimension in DIMENSIONS],
        "agreement": [_rating(rating) for rating in report_view.evaluator_agreement(report.rows)],
        "gates": [
            {"agent": made.agent, "gate": made.gate, "status": made.status, "text": made.text}
            for made in report.decisions
        ],
        "made_with": [vars(part) for part in report_view.component_views(report)],
        "calibrations": {judge: found.model_dump(mode="json") for judge, found in report.calibrations.items()},
        "servers": [server for manifest in report.manifests for server in manifest.get("servers", ())],
        "runs": [{name: value(account) for name, (_, value) in COLUMNS.items()} for account in report.accounts],
    }
    return dumps(redact_json(content), indent=1) + "\n"


def _agent(agent: report_view.AgentView) -> dict[str, Any]:
    return {
        "agent": agent.name,
        **summary_metrics(agent.summary),
        "trials": {name.partition(":")[0]: estimate_values(figure) for name, figure in agent.trials.items()},
        "flaky": agent.summary.flaky,
        "emulation": agent.summary.validity,
    }


def _slices(report: ReportData, dimension: Dimension) -> dict[str, Any]:
    found = report_view.slice_grid(report, dimension)
    values = {
        value: {cell.agent: summary_metrics(cell.summary) for cell in cells if cell.summary.n}
        for value, cells in found.lines
    }
    return {"by": dimension, "values": values}


def _rating(rating: report_view.EvaluatorAgreement) -> dict[str, Any]:
    pairs = [
        {
            "first": pair.first,
            "second": pair.second,
            "runs": pair.n,
            "same_score": estimate_values(pair.exact),
            "kappa_passing": estimate_values(pair.binary),
            "kappa_passing_undefined": pair.why_no_binary or None,
            "kappa_quadratic": estimate_values(pair.quadratic),
            "kappa_quadratic_undefined": pair.why_no_quadratic or None,
        }
        for pair in rating.pairs
    ]
    return {"metric": rating.metric, "krippendorff_alpha": estimate_values(rating.alpha), "pairs": pairs}


def _cell(value: Value, known: Redactor) -> Value:
    return csv_cell(shorten(value, _LONG, known)) if isinstance(value, str) else value


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)
