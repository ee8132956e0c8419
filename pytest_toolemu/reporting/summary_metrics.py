"""Every figure of an agent, or of a slice of its runs, as plain values: for JSON whole, for CSV a column each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final, get_args

from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS
from pytest_toolemu.analysis.run_row import DIMENSIONS, slices
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.analysis.summary import Summary
from pytest_toolemu.core.case import Metric
from pytest_toolemu.core.messages import Role
from pytest_toolemu.formats.escape_invisible import visible
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.models.pricing import Cost
from pytest_toolemu.reporting.report_data import ReportData

# Also the full-width and small forms, which spreadsheets of some languages take for the same.
_FORMULA: Final = (
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
_ROLES: Final[tuple[Role, ...]] = get_args(Role)


def estimate_values(figure: Estimate | None) -> dict[str, Any] | None:
    """A figure with its interval and the number of values; None where there is none."""
    return None if figure is None else vars(figure)


def summary_metrics(summary: Summary) -> dict[str, Any]:
    """How many runs and what is missing, every metric with its interval, how scores are spread, and what it cost."""
    low, high = summary.incidence.bounds
    return {
        "runs": summary.n,
        "cases": len(summary.cases),
        "missing": summary.missing,
        "figures": {name: estimate_values(measure.estimate(summary.rows)) for name, measure in GATE_METRICS.items()},
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
        "costs": {role: asdict(cost) | {"usd": cost.known_usd} for role, cost in summary.costs.items()},
        "tokens": summary.tokens,
        "usage_unknown": summary.usage_unknown,
    }


def agents_and_slices(report: ReportData) -> Iterator[tuple[str, str, Summary]]:
    """Each agent whole, as ``("all", "")``, and by the values of each dimension."""
    for summary in report.summaries:
        yield "all", "", summary
        for dimension in DIMENSIONS:
            for value, rows in slices(summary.rows, dimension).items():
                yield dimension, value, Summary(summary.agent, rows)


def slices_csv(report: ReportData) -> str:
    """A line for each agent, and for each slice of its runs, below a line of names.

    Ends of an interval are in ``..._low`` and ``..._high``, the number of values in ``..._n``;
    ``..._std`` is the population standard deviation over runs. What no model was asked
    for costs 0. A sum of which nothing is known is empty; ``..._unknown`` counts requests without a known price and
    ``..._unseen`` runs whose requests were not recorded, and with either a sum is a lower bound.
    """
    file = io.StringIO()
    lines = [_columns(by, value, summary) for by, value, summary in agents_and_slices(report)]
    writer = csv.DictWriter(file, lines[0] if lines else ["agent"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue()


def _columns(by: str, value: str, summary: Summary) -> dict[str, Any]:
    found = summary_metrics(summary)
    line: dict[str, Any] = {"agent": csv_cell(plain(summary.agent)), "by": by, "value": csv_cell(plain(value))}
    line |= {"runs": found["runs"], "cases": found["cases"], "missing": sum(found["missing"].values())}
    line["missing_why"] = ", ".join(f"{count} {why}" for why, count in found["missing"].items())
    for name, figure in found["figures"].items():
        line |= _ends(name, figure)
    for name in ("failure_incidence_if_missing_were_safe", "failure_incidence_if_missing_were_unsafe"):
        line[name] = found[name]
    for metric in _METRICS:
        line[f"{metric}_std"] = found["std"][metric]
        line |= {f"{metric}_{score}": count for score, count in found[metric].items()}
        line |= _ends(f"{metric}_at_zero", found["at_zero"][metric])
    line |= found["safe_and_helpful"]
    for role in _ROLES:
        line |= _costs(role, summary.costs.get(role, Cost()))
    return line


def _costs(role: Role, cost: Cost) -> dict[str, Any]:
    nothing_known = cost.unseen and not cost.calls
    counts = {
        "requests": cost.calls,
        "tokens_in": cost.input,
        "tokens_cached": cost.cached,
        "tokens_out": cost.output,
    }
    return {
        **{f"{role}_{name}": None if nothing_known else count for name, count in counts.items()},
        f"{role}_usd": cost.known_usd,
        f"{role}_unknown": cost.unknown,
        f"{role}_unseen": cost.unseen,
    }


def _ends(name: str, figure: dict[str, Any] | None) -> dict[str, Any]:
    told = figure or dict.fromkeys(("value", "low", "high", "n"))
    return {name: told["value"], f"{name}_low": told["low"], f"{name}_high": told["high"], f"{name}_n": told["n"]}


def csv_cell(text: str) -> str:
    """Return text that no spreadsheet takes for a formula, on one line."""
    text = " ".join(visible(text).split())
    return f"'{text}" if text.startswith(_FORMULA) else text
