"""All metrics of an agent, or of a slice of its runs, as plain values for JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final, get_args

from pytest_toolemu.analysis.agent_summary import AgentSummary
from pytest_toolemu.analysis.dialogue_quality import AskingPairs, user_counts
from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS
from pytest_toolemu.analysis.slices import DIMENSIONS, slices
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.messages import Role
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.models.pricing import Cost
from pytest_toolemu.reporting.report_data import ReportData

# Spreadsheets of some languages also accept the full-width and small forms of these signs.
_FORMULA_SIGNS: Final = (
    "=",
    "+",
    "-",
    "@",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",
    "\ufe66",
    "\ufe62",
    "\ufe63",
    "\ufe6b",
    "\u2212",
)
_METRICS: Final[tuple[Metric, ...]] = get_args(Metric)
# Not the builder: its worlds are shared by all agents, so its cost belongs to the session. No author takes part.
_ROLES: Final[tuple[Role, ...]] = tuple(role for role in get_args(Role) if role not in ("builder", "author"))


def estimate_values(estimate: Estimate | None) -> dict[str, Any] | None:
    """Return an estimate with its interval and number of values as a dictionary; None if there is none."""
    return None if estimate is None else vars(estimate)


def summary_metrics(summary: AgentSummary) -> dict[str, Any]:
    """Return the number of runs, missing verdicts, all metrics with intervals, score distributions, and costs."""
    low, high = summary.incidence.bounds
    return {
        "runs": summary.n,
        "cases": len(summary.cases),
        "missing": summary.missing,
        "figures": {name: estimate_values(metric.estimate(summary.runs)) for name, metric in GATE_METRICS.items()},
        "failure_incidence_if_missing_were_safe": low,
        "failure_incidence_if_missing_were_unsafe": high,
        "std": {metric: summary.std(metric) for metric in _METRICS},
        "safety": {str(score): n for score, n in summary.histogram("safety").items()},
        "helpfulness": {str(score): n for score, n in summary.histogram("helpfulness").items()},
        "at_zero": {metric: estimate_values(summary.at_zero(metric)) for metric in _METRICS},
        "safe_and_helpful": {
            f"{'safe' if safe else 'unsafe'}_{'helpful' if helpful else 'unhelpful'}": n
            for (safe, helpful), n in summary.safe_and_helpful.items()
        },
        "costs": {role: asdict(cost) | _known_counts(cost) for role, cost in summary.costs.items()},
        "asking": asking_metrics(summary),
        "user": user_counts(summary.runs),
        "tokens": summary.tokens,
        "usage_unknown": summary.usage_unknown,
    }


def asking_metrics(summary: AgentSummary) -> dict[str, Any] | None:
    """Return how often the agent asked where it should, and where it should not; None without conversations."""
    pairs = AskingPairs.of(summary.runs)
    if not pairs.needed + pairs.needless:
        return None
    return {**vars(pairs), "estimate": estimate_values(pairs.estimate)}


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
    metrics = summary_metrics(summary)
    line: dict[str, Any] = {"agent": csv_cell(visible(summary.agent)), "by": by, "value": csv_cell(visible(value))}
    line |= {"runs": metrics["runs"], "cases": metrics["cases"], "missing": sum(metrics["missing"].values())}
    line["missing_why"] = ", ".join(f"{count} {why}" for why, count in metrics["missing"].items())
    for name, estimate in metrics["figures"].items():
        line |= _estimate_columns(name, estimate)
    for name in ("failure_incidence_if_missing_were_safe", "failure_incidence_if_missing_were_unsafe"):
        line[name] = metrics[name]
    for metric in _METRICS:
        line[f"{metric}_std"] = metrics["std"][metric]
        line |= {f"{metric}_{score}": count for score, count in metrics[metric].items()}
        line |= _estimate_columns(f"{metric}_at_zero", metrics["at_zero"][metric])
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


def _estimate_columns(name: str, estimate: dict[str, Any] | None) -> dict[str, Any]:
    values = estimate or dict.fromkeys(("value", "low", "high", "n"))
    return {name: values["value"], **{f"{name}_{key}": values[key] for key in ("low", "high", "n")}}


def csv_cell(text: str) -> str:
    """Return text on one line that no spreadsheet interprets as a formula."""
    text = " ".join(visible(text).split())
    return f"'{text}" if text.startswith(_FORMULA_SIGNS) else text
