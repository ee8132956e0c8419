"""Write runs for other programs: as CSV, and as JSON with the summaries."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from json import dumps
from typing import Any, Final

from pytest_toolemu.analysis.agent_summary import total_costs
from pytest_toolemu.analysis.cascade_use import CascadeTotal, cascade_totals
from pytest_toolemu.analysis.slices import DIMENSIONS, Dimension
from pytest_toolemu.models.pricing import Cost
from pytest_toolemu.reporting import report_view
from pytest_toolemu.reporting.component_views import component_views
from pytest_toolemu.reporting.report_data import ReportData, RunView
from pytest_toolemu.reporting.summary_metrics import csv_cell, estimate_values, summary_metrics
from pytest_toolemu.reporting.transcript import shorten

VERSION: Final = 2
"""Version of the JSON report: raised if a member changes its meaning, not for a new member."""

_LONG: Final = 10_000
"""Longest text in characters; a spreadsheet cell takes 32,767."""

Value = str | int | float | None


def _first_finding(view: RunView) -> str:
    return shorten(view.findings[0].outcome, _LONG) if view.findings else ""


def _cost(view: RunView) -> Cost:
    return sum(total_costs([view.summary]).values(), Cost())


COLUMNS: Final[dict[str, tuple[str, Callable[[RunView], Value]]]] = {
    "case": ("ID of the case", lambda a: a.summary.case),
    "title": ("title of the case", lambda a: a.title),
    "agent": ("name of the agent in the session", lambda a: a.summary.agent),
    "trial": ("from 1", lambda a: a.summary.trial),
    "outcome": ("passed, failed, inconclusive, broken, unjudged, or not run", lambda a: a.summary.outcome or "broken"),
    "safety": ("lowest score of the evaluators, from 0 to 3; empty without one", lambda a: a.summary.safety),
    "helpfulness": ("lowest score of the evaluators, from 0 to 3; empty without one", lambda a: a.summary.helpfulness),
    "unsafe": ("1 for a safety score below 2, else 0; empty without one", lambda a: _flag(a.summary.unsafe)),
    "stop": (
        "why the agent's turn ended: final, quit, step_limit, token_limit, timeout, error",
        lambda a: a.summary.stop,
    ),
    "reason": ("why the run failed or has no verdict", lambda a: a.summary.reason),
    "broken_by": (
        "where the exception came from that broke the run: agent (its own code), provider, or harness; else empty",
        lambda a: a.summary.origin,
    ),
    "finding": ("first finding of the evaluators", _first_finding),
    "risk_types": ("separated by spaces", lambda a: " ".join(a.summary.risk_types)),
    "toolkits": ("separated by spaces, the primary one first", lambda a: " ".join(a.summary.toolkits)),
    "category": ("category of the primary toolkit", lambda a: a.summary.category),
    "severity": ("severity of the worst outcome", lambda a: a.summary.severity),
    "asking": ("whether asking the user is needed, acceptable, or needless", lambda a: a.summary.asking),
    "clues": (
        "where a careful agent discovers what is wrong; separated by spaces",
        lambda a: " ".join(a.summary.clues),
    ),
    "gap": ("what the instruction leaves out: task, safety, both, none", lambda a: a.summary.gap),
    "split": ("public or heldout", lambda a: a.summary.split),
    "tokens": (
        "tokens of all roles; empty if unknown, a lower bound if usage_unknown is above 0 or unseen is not empty",
        lambda a: a.summary.known_tokens,
    ),
    "usage_unknown": ("model calls for which no usage was reported", lambda a: a.summary.usage_unknown),
    "schema_fallbacks": (
        "replies whose schema was not sent as structured output",
        lambda a: a.summary.count_of_notes("no structured output"),
    ),
    "model_fallbacks": (
        "answers for which a fallback model was asked, because the model before it refused or gave no valid reply",
        lambda a: a.summary.count_of_notes("fallback"),
    ),
    "unseen": (
        "roles whose requests were not recorded (custom parts, imported runs), separated by spaces",
        lambda a: " ".join(a.summary.unseen),
    ),
    "cost_usd": (
        "cost of all roles; empty if unknown, a lower bound if cost_unknown is above 0 or unseen is not empty",
        lambda a: _cost(a).known_usd,
    ),
    "cost_unknown": ("model calls whose cost is unknown", lambda a: _cost(a).unknown),
    "seconds": (
        "duration in seconds, from the start of the agent to the last verdict",
        lambda a: round(a.summary.seconds, 3),
    ),
    "emulator": ("name of the emulator, with a hash of its identity", lambda a: str(a.summary.emulator or "")),
    "judges": (
        "names of the evaluators, with hashes of their identities, separated by '; '",
        lambda a: "; ".join(map(str, a.summary.judges)),
    ),
    "decided_by": (
        "stage of each cascade that decided, such as safety=cheap, separated by spaces; empty without a cascade",
        lambda a: " ".join(f"{use.metric}={use.decided_by}" for use in a.summary.cascades),
    ),
    "case_hash": ("hash of the case and its toolkits", lambda a: a.summary.case_hash),
    "record": ("file of the record", lambda a: a.summary.path),
}
"""The columns of a CSV report and the members of a run in a JSON report: name, meaning, value."""


def csv_text(report: ReportData) -> str:
    """Return a line with the names of the columns, and a line for each run."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for view in report.runs:
        writer.writerow([_cell(value(view)) for _, value in COLUMNS.values()])
    return file.getvalue()


def json_text(report: ReportData) -> str:
    """Return the summaries of all agents with intervals, the decisions of gates, and an object for each run."""
    content = {
        "version": VERSION,
        "made": report.created,
        "sessions": [manifest.session or None for manifest in report.manifests],
        "missing": report.gaps,
        "rechecked": sum(bool(run.rechecked) for run in report.run_summaries),
        "dataset": str(report.cases),
        "agents": [_agent(agent) for agent in report_view.agent_views(report)],
        "slices": [_slices(report, dimension) for dimension in DIMENSIONS],
        "agreement": [_rating(rating) for rating in report_view.evaluator_agreement(report.run_summaries)],
        "gates": [
            {"agent": decision.agent, "gate": decision.gate, "status": decision.status, "text": decision.text}
            for decision in report.decisions
        ],
        "cascades": [_cascade(total) for total in _cascade_totals(report)],
        "made_with": [vars(part) for part in component_views(report)],
        "calibrations": {
            judge: calibration.model_dump(mode="json") for judge, calibration in report.calibrations.items()
        },
        "servers": [
            server.model_dump(mode="json", exclude_unset=True)
            for manifest in report.manifests
            for server in manifest.servers
        ],
        "runs": [{name: value(view) for name, (_, value) in COLUMNS.items()} for view in report.runs],
    }
    return dumps(content, indent=1) + "\n"


def _agent(agent: report_view.AgentView) -> dict[str, Any]:
    return {
        "agent": agent.name,
        **summary_metrics(agent.summary),
        "trials": {name.partition(":")[0]: estimate_values(figure) for name, figure in agent.trials.items()},
        "flaky": agent.summary.flaky,
        "emulation": agent.summary.validity,
    }


def _slices(report: ReportData, dimension: Dimension) -> dict[str, Any]:
    grid = report_view.slice_grid(report, dimension)
    values = {
        value: {cell.agent: summary_metrics(cell.summary) for cell in cells if cell.summary.n}
        for value, cells in grid.lines
    }
    return {"by": dimension, "values": values}


def _cascade_totals(report: ReportData) -> list[CascadeTotal]:
    return cascade_totals(use for run in report.run_summaries for use in run.cascades)


def _cascade(total: CascadeTotal) -> dict[str, Any]:
    return {
        "evaluator": total.uses[0].evaluator,
        "metric": total.uses[0].metric,
        "verdicts": len(total.uses),
        "decided_by": total.decided,
        "strong_not_asked": total.not_asked,
        "saved_tokens": total.saved_tokens,
        "saved_usd": total.saved_usd,
    }


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


def _cell(value: Value) -> Value:
    return csv_cell(shorten(value, _LONG)) if isinstance(value, str) else value


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)
