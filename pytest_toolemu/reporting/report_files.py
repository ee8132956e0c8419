"""Writes report files atomically."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from json import dumps
from pathlib import Path
from typing import Any, Final, get_args

from pytest_toolemu.analysis.cascade_use import CascadeTotal, cascade_totals
from pytest_toolemu.analysis.metrics import SCORED, AgentSummary, asking_values, total_costs, user_counts
from pytest_toolemu.analysis.run_summary import DIMENSIONS, Dimension, slices
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.core.messages import Role
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.models.pricing import Cost
from pytest_toolemu.reporting.html_report import EvaluatorAgreement, evaluator_agreement, report_page, slice_grid
from pytest_toolemu.reporting.markdown import markdown
from pytest_toolemu.reporting.report_data import ReportData, RunView, component_views
from pytest_toolemu.reporting.transcript import shorten
from pytest_toolemu.settings import FORMATS, REPORT


def write_reports(report: ReportData, formats: Iterable[str], folder: Path) -> list[Path]:
    """Write ``report.FORMAT`` for each format, and return the paths; OSError if a file cannot be written.

    CSV has a second file for slices. HTML needs a report with transcripts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    requested = set(formats)
    paths = []
    for name in (name for name in FORMATS if name in requested):
        for suffix, text in _texts(report, name):
            path = folder / f"{REPORT}.{suffix}"
            write_json_text(path, text)
            paths.append(path)
    return paths


def _texts(report: ReportData, name: str) -> Iterator[tuple[str, str]]:
    """Yield the file suffix and the content of each file of a format."""
    if name == "html":
        yield name, report_page(report)
    elif name == "md":
        yield name, markdown(report)
    elif name == "json":
        yield name, json_text(report)
    else:
        yield name, csv_text(report)
        yield f"slices.{name}", slices_csv(report)


VERSION: Final = 1
"""Version of the JSON report: raised if a member changes its meaning, not for a new member."""

_LONG: Final = 10_000
"""Longest text in characters; a spreadsheet cell takes 32,767."""

Value = str | int | float | None


def _first_finding(view: RunView) -> str:
    return shorten(view.findings[0].outcome, _LONG) if view.findings else ""


def _cost(view: RunView) -> Cost:
    return sum(total_costs([view.summary]).values(), Cost())


def _stated(dimension: Dimension, view: RunView) -> str:
    return " ".join(view.summary.slices.get(dimension, ()))


_DIMENSIONS: Final[dict[Dimension, str]] = {
    "risk_type": "risk types of the case",
    "toolkit": "toolkits of the case, the primary one first",
    "category": "category of the primary toolkit",
    "severity": "severity of the worst outcome",
    "asking": "whether asking the user is needed, acceptable, or needless",
    "clue": "where a careful agent discovers what is wrong",
    "gap": "what the instruction leaves out: task, safety, both, none",
    "split": "public or heldout",
}

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
    **{
        dimension: (f"{meaning}; several are separated by spaces", partial(_stated, dimension))
        for dimension, meaning in _DIMENSIONS.items()
    },
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
        "agents": [_agent(agent) for agent in report.summaries],
        "slices": [_slices(report, dimension) for dimension in DIMENSIONS],
        "agreement": [_rating(rating) for rating in evaluator_agreement(report.run_summaries)],
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


def _agent(summary: AgentSummary) -> dict[str, Any]:
    return {
        "agent": summary.agent,
        **summary_fields(summary),
        "flaky": summary.flaky,
        "emulation": summary.validity,
    }


def _slices(report: ReportData, dimension: Dimension) -> dict[str, Any]:
    grid = slice_grid(report, dimension)
    values = {value: {cell.agent: summary_fields(cell) for cell in cells if cell.n} for value, cells in grid.lines}
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


def _rating(rating: EvaluatorAgreement) -> dict[str, Any]:
    pairs = [
        {
            "first": pair.first,
            "second": pair.second,
            "runs": pair.n,
            "same_score": _fields(pair.exact),
            "kappa_passing": _fields(pair.binary),
            "kappa_passing_undefined": pair.why_no_binary or None,
            "kappa_quadratic": _fields(pair.quadratic),
            "kappa_quadratic_undefined": pair.why_no_quadratic or None,
        }
        for pair in rating.pairs
    ]
    return {"metric": rating.metric, "krippendorff_alpha": _fields(rating.alpha), "pairs": pairs}


def _cell(value: Value) -> Value:
    return csv_cell(shorten(value, _LONG)) if isinstance(value, str) else value


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


# Spreadsheets of some languages also accept the full-width and small forms of these signs.
_FORMULA_SIGNS: Final = tuple("=+-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u2212")
# Not the builder: its worlds are shared by all agents, so its cost belongs to the session. No author takes part.
_ROLES: Final[tuple[Role, ...]] = tuple(role for role in get_args(Role) if role not in ("builder", "author"))


def _fields(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else vars(estimate)


def summary_fields(summary: AgentSummary) -> dict[str, Any]:
    """Return the number of runs, missing verdicts, all metrics with intervals, score distributions, and costs."""
    low, high = summary.bounds
    return {
        "runs": summary.n,
        "cases": len(summary.cases),
        "missing": summary.missing,
        "metrics": {name: row.fields for name, row in summary.metrics.items()},
        "failure_incidence_if_missing_were_safe": low,
        "failure_incidence_if_missing_were_unsafe": high,
        "std": {metric: summary.std(metric) for metric in SCORED},
        "scores": {metric: {str(score): n for score, n in summary.histogram(metric).items()} for metric in SCORED},
        "safe_and_helpful": {
            f"{'safe' if safe else 'unsafe'}_{'helpful' if helpful else 'unhelpful'}": n
            for (safe, helpful), n in summary.safe_and_helpful.items()
        },
        "costs": {role: asdict(cost) | _known_counts(cost) for role, cost in summary.costs.items()},
        "asking": asking_values(summary.runs),
        "user": user_counts(summary.runs),
        "tokens": summary.tokens,
        "usage_unknown": summary.usage_unknown,
    }


def agents_and_slices(report: ReportData) -> Iterator[tuple[str, str, AgentSummary]]:
    """Yield (dimension, value, summary) for each agent as a whole, ``("all", "")``, and for each of its slices."""
    for summary in report.summaries:
        yield "all", "", summary
        for dimension in DIMENSIONS:
            for value, runs in slices(summary.runs, dimension).items():
                yield dimension, value, AgentSummary(summary.agent, runs)


def slices_csv(report: ReportData) -> str:
    """Return CSV with a line for each agent and for each slice of its runs.

    ``..._low`` and ``..._high`` are the ends of an interval, ``..._n`` the number of values, and ``..._std`` the
    population standard deviation over runs. A role without a model costs 0. A sum is empty if nothing is known, and a
    lower bound if ``..._unknown`` (requests without a known price) or ``..._unseen`` (runs whose requests were not
    recorded) is above 0.
    """
    file = io.StringIO()
    lines = [_columns(by, value, summary) for by, value, summary in agents_and_slices(report)]
    writer = csv.DictWriter(file, lines[0] if lines else ["agent"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue()


def _columns(by: str, value: str, summary: AgentSummary) -> dict[str, Any]:
    metrics = summary_fields(summary)
    line: dict[str, Any] = {"agent": csv_cell(visible(summary.agent)), "by": by, "value": csv_cell(visible(value))}
    line |= {"runs": metrics["runs"], "cases": metrics["cases"], "missing": sum(metrics["missing"].values())}
    line["missing_why"] = ", ".join(f"{count} {why}" for why, count in metrics["missing"].items())
    for name, row in summary.metrics.items():
        if row not in summary.trial_metrics:
            values = row.fields or dict.fromkeys(("value", "low", "high", "n"))
            line |= {name: values["value"], **{f"{name}_{key}": values[key] for key in ("low", "high", "n")}}
    for name in ("failure_incidence_if_missing_were_safe", "failure_incidence_if_missing_were_unsafe"):
        line[name] = metrics[name]
    for metric in SCORED:
        line[f"{metric}_std"] = metrics["std"][metric]
        line |= {f"{metric}_{score}": count for score, count in metrics["scores"][metric].items()}
    line |= metrics["safe_and_helpful"]
    for role in _ROLES:
        line |= _costs(role, summary.costs.get(role, Cost()))
    return line


def _costs(role: Role, cost: Cost) -> dict[str, Any]:
    counts = _known_counts(cost)
    return {
        f"{role}_requests": counts["calls"],
        f"{role}_tokens_in": counts["input"],
        f"{role}_tokens_cached": counts["cached"],
        f"{role}_tokens_out": counts["output"],
        f"{role}_usd": counts["usd"],
        f"{role}_unknown": cost.unknown,
        f"{role}_unseen": cost.unseen,
    }


def _known_counts(cost: Cost) -> dict[str, float | None]:
    """Return requests, tokens, and USD. All are None if no request was recorded although there were some."""
    names = ("calls", "input", "cached", "output")
    nothing_known = cost.unseen and not cost.calls
    return {**{name: None if nothing_known else getattr(cost, name) for name in names}, "usd": cost.known_usd}


def csv_cell(text: str) -> str:
    """Return text on one line that no spreadsheet interprets as a formula."""
    text = " ".join(visible(text).split())
    return f"'{text}" if text.startswith(_FORMULA_SIGNS) else text
