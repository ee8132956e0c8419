"""Reports as files: Markdown, JSON, and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from json import dumps
from pathlib import Path
from typing import Any, Final, get_args

from pytest_toolemu.analysis.metrics import (
    SCORED,
    AgentSummary,
    asking_values,
    in_one_line,
    total_costs,
    user_counts,
    user_values,
)
from pytest_toolemu.analysis.run_summary import DIMENSIONS, Dimension, cascade_totals, slices
from pytest_toolemu.core.messages import Role
from pytest_toolemu.core.run import UNJUDGED
from pytest_toolemu.core.run_notes import note_lines
from pytest_toolemu.formats.file_access import write_atomically
from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.formats.text import visible
from pytest_toolemu.models.pricing import Cost
from pytest_toolemu.reporting.html_report import evaluator_agreement, report_environment, report_page, slice_grid
from pytest_toolemu.reporting.report_data import ReportData, RunView, component_views, recheck_line
from pytest_toolemu.reporting.transcript import shorten
from pytest_toolemu.settings.option_table import REPORT


def write_reports(report: ReportData, formats: Iterable[str], folder: Path) -> list[Path]:
    """Write ``report.FORMAT`` for each format, and return the paths; OSError if a file cannot be written.

    CSV has a second file for slices. HTML needs a report with transcripts.
    """
    texts = {"html": report_page, "md": markdown, "json": json_text, "csv": csv_text, "slices.csv": slices_csv}
    requested = set(formats)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix, text in texts.items():
        if suffix.rpartition(".")[2] in requested:
            paths.append(folder / f"{REPORT}.{suffix}")
            write_atomically(paths[-1], text(report))
    return paths


VERSION: Final = 1
"""Version of the JSON report: raised if a member changes its meaning, not for a new member."""

_LONG: Final = 10_000
"""Longest text in characters; a spreadsheet cell takes 32,767."""

Value = str | int | float | None


def _stated(dimension: Dimension, view: RunView) -> str:
    return " ".join(view.summary.slices.get(dimension, ()))


def _cost(view: RunView) -> Cost:
    return sum(total_costs([view.summary]).values(), Cost())


COLUMNS: Final[dict[str, Callable[[RunView], Value]]] = {
    "case": lambda view: view.summary.case,
    "title": lambda view: view.title,
    "agent": lambda view: view.summary.agent,
    "trial": lambda view: view.summary.trial,
    "outcome": lambda view: view.summary.outcome or "broken",
    # The combined scores of the evaluators, from 0 to 3; empty without one.
    "safety": lambda view: view.summary.safety,
    "helpfulness": lambda view: view.summary.helpfulness,
    "honesty": lambda view: view.summary.honesty,
    "unsafe": lambda view: None if view.summary.unsafe is None else int(view.summary.unsafe),
    "stop": lambda view: view.summary.stop,
    "reason": lambda view: view.summary.reason,
    # Where the exception came from that broke the run: agent (its own code), provider, or harness.
    "broken_by": lambda view: view.summary.origin,
    "finding": lambda view: shorten(view.findings[0].outcome, _LONG) if view.findings else "",
    **{dimension: partial(_stated, dimension) for dimension in DIMENSIONS},
    # Empty if unknown, and a lower bound if usage_unknown is above 0 or unseen is not empty.
    "tokens": lambda view: view.summary.known_tokens,
    "usage_unknown": lambda view: view.summary.usage_unknown,
    "schema_fallbacks": lambda view: view.summary.count_of_notes("no structured output"),
    "model_fallbacks": lambda view: view.summary.count_of_notes("fallback"),
    # Roles whose requests were not recorded: those of custom parts, and of imported runs.
    "unseen": lambda view: " ".join(view.summary.unseen),
    "cost_usd": lambda view: _cost(view).known_usd,
    "cost_unknown": lambda view: _cost(view).unknown,
    # From the start of the agent to the last verdict.
    "seconds": lambda view: round(view.summary.seconds, 3),
    "emulator": lambda view: str(view.summary.emulator or ""),
    "judges": lambda view: "; ".join(map(str, view.summary.judges)),
    # The stage of each cascade that decided, such as safety=cheap.
    "decided_by": lambda view: " ".join(f"{use.metric}={use.decided_by}" for use in view.summary.cascades),
    "case_hash": lambda view: view.summary.case_hash,
    "record": lambda view: view.summary.path,
}
"""The columns of a CSV report and the members of a run in a JSON report. Several values are separated by spaces."""


def csv_text(report: ReportData) -> str:
    """Return a line with the names of the columns, and a line for each run."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for view in report.runs:
        writer.writerow([_cell(value(view)) for value in COLUMNS.values()])
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
        "agents": [
            {"agent": agent.agent, **summary_fields(agent), "flaky": agent.flaky, "emulation": agent.validity}
            for agent in report.summaries
        ],
        "slices": [
            {
                "by": by,
                "values": {
                    value: {cell.agent: summary_fields(cell) for cell in cells if cell.n}
                    for value, cells in slice_grid(report, by).lines
                },
            }
            for by in DIMENSIONS
        ],
        "agreement": [asdict(agreement) for agreement in evaluator_agreement(report.run_summaries)],
        "gates": [asdict(decision) for decision in report.decisions],
        "cascades": [
            {
                "evaluator": total.uses[0].evaluator,
                "metric": total.uses[0].metric,
                "verdicts": len(total.uses),
                "decided_by": total.decided,
                "strong_not_asked": total.not_asked,
                "saved_tokens": total.saved_tokens,
                "saved_usd": total.saved_usd,
            }
            for total in cascade_totals(use for run in report.run_summaries for use in run.cascades)
        ],
        "made_with": [vars(part) for part in component_views(report)],
        "calibrations": {
            judge: calibration.model_dump(mode="json") for judge, calibration in report.calibrations.items()
        },
        "servers": [
            server.model_dump(mode="json", exclude_unset=True)
            for manifest in report.manifests
            for server in manifest.servers
        ],
        "runs": [{name: value(view) for name, value in COLUMNS.items()} for view in report.runs],
    }
    return dumps(content, indent=1) + "\n"


def _cell(value: Value) -> Value:
    return csv_cell(shorten(value, _LONG)) if isinstance(value, str) else value


# Spreadsheets of some languages also accept the full-width and small forms of these signs.
_FORMULA_SIGNS: Final = tuple("=+-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u2212")
# Not the builder: its worlds are shared by all agents, so its cost belongs to the session. No author takes part.
_ROLES: Final[tuple[Role, ...]] = tuple(role for role in get_args(Role) if role not in ("builder", "author"))


def summary_fields(summary: AgentSummary) -> dict[str, Any]:
    """Return the number of runs, missing verdicts, all metrics with intervals, score distributions, and costs."""
    low, high = summary.bounds
    return {
        "runs": summary.n,
        "cases": len(summary.cases),
        "missing": summary.missing,
        "combination": summary.combination,
        "metrics": {name: row.fields for name, row in summary.metrics.items()},
        "failure_incidence_if_missing_were_safe": low,
        "failure_incidence_if_missing_were_unsafe": high,
        "std": {metric: summary.std(metric) for metric in SCORED},
        "scores": {metric: {str(score): n for score, n in summary.histogram(metric).items()} for metric in SCORED},
        "safe_and_helpful": {
            f"{'safe' if safe else 'unsafe'}_{'helpful' if helpful else 'unhelpful'}": n
            for (safe, helpful), n in summary.safe_and_helpful.items()
        },
        "costs": {role: _cost_fields(cost) for role, cost in summary.costs.items()},
        "asking": asking_values(summary.runs),
        "user": user_counts(summary.runs),
        "tokens": summary.tokens,
        "usage_unknown": summary.usage_unknown,
    }


def slices_csv(report: ReportData) -> str:
    """Return CSV with a line for each agent (``by`` is ``all``) and for each slice of its runs.

    A column has the path of a member of an agent in the JSON report, such as ``metrics.mean_safety.value``. A sum of
    ``costs`` is empty if nothing is known, and a lower bound if ``unknown`` (requests without a known price) or
    ``unseen`` (runs whose requests were not recorded) is above 0. A role without a model costs 0.
    """
    lines = []
    for summary in report.summaries:
        parts: list[tuple[str, str, AgentSummary]] = [("all", "", summary)]
        for dimension in DIMENSIONS:
            of_slices = slices(summary.runs, dimension).items()
            parts += [(dimension, value, AgentSummary(summary.agent, runs)) for value, runs in of_slices]
        for by, value, part in parts:
            fields = summary_fields(part)
            fields["costs"] = {role: _cost_fields(part.costs.get(role, Cost())) for role in _ROLES}
            lines.append({"agent": summary.agent, "by": by, "value": value, **_flat(fields)})
    file = io.StringIO()
    columns = dict.fromkeys(name for line in lines for name in line)
    writer = csv.DictWriter(file, columns or ["agent"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in line.items()} for line in lines)
    return file.getvalue()


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    flat: dict[str, Value] = {}
    for name, value in fields.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _cost_fields(cost: Cost) -> dict[str, Any]:
    """Return requests, tokens, and USD. All are None if no request was recorded although there were some."""
    if cost.unseen and not cost.calls:
        return {**asdict(cost), **dict.fromkeys(("calls", "input", "cached", "output", "usd"))}
    return {**asdict(cost), "usd": cost.known_usd}


def csv_cell(text: str) -> str:
    """Return text on one line that no spreadsheet interprets as a formula."""
    text = " ".join(visible(text).split())
    return f"'{text}" if text.startswith(_FORMULA_SIGNS) else text


LIMIT: Final = 60_000
"""The largest size in bytes; GitHub refuses comments of more than 65,536 characters."""

_SUMMARY_LIMIT: Final = 1024 * 1024


def markdown(report: ReportData) -> str:
    """Return gates, metrics of agents, missing verdicts, the worst runs, and runs without a verdict."""
    runs = report.run_summaries
    text = (
        report_environment()
        .get_template("report.md.j2")
        .render(
            report=report,
            components=component_views(report),
            asking={agent.agent: in_one_line(asking_values(agent.runs)) for agent in report.summaries},
            user=in_one_line(user_values(runs)),
            rechecked=recheck_line(runs),
            cascades=cascade_totals(use for run in runs for use in run.cascades),
            notes=note_lines(run.case_notes for run in runs),
        )
    )
    lines: list[str] = []
    bytes_left = LIMIT
    for line in text.splitlines():
        bytes_left -= len(line.encode()) + 1
        if bytes_left < 0:
            lines.append("\nThe rest is in the HTML report.")
            break
        lines.append(line)
    return "\n".join(lines) + "\n"


def append_summary(text: str, path: Path) -> bool:
    """Append a report to a GitHub job summary; return False if it would exceed the size that GitHub accepts."""
    text = redact(text)
    size = path.stat().st_size if path.exists() else 0
    if size + len(text.encode()) > _SUMMARY_LIMIT:
        return False
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
    return True


MAX_ANNOTATIONS: Final = 10
"""GitHub shows this many annotations of a level for a step, and silently drops the others."""

_MAX_TEXT: Final = 500


def annotation_commands(report: ReportData) -> Iterator[str]:
    """Yield workflow commands: an error for each failure of an agent, a warning for each run without a verdict.

    A run that is judged later is only a notice.
    """
    levels = (("error", ("failed",)), ("warning", ("broken", "inconclusive")), ("notice", (UNJUDGED,)))
    for level, outcomes in levels:
        runs = [run for run in report.runs if (run.summary.outcome or "broken") in outcomes]
        for run in runs[: MAX_ANNOTATIONS if len(runs) <= MAX_ANNOTATIONS else MAX_ANNOTATIONS - 1]:
            yield _command(level, run)
        if len(runs) > MAX_ANNOTATIONS:
            more = f"{len(runs) - MAX_ANNOTATIONS + 1} more of {len(runs)} runs; the job summary counts all of them"
            yield f"::{level} title=toolemu::{_data(more)}"


def _command(level: str, run: RunView) -> str:
    summary = run.summary
    trial = f", trial {summary.trial}" if summary.trial > 1 else ""
    title = f"{summary.outcome or 'broken'}: {summary.case} ({summary.agent}{trial})"
    finding = run.findings[0].outcome if run.findings else ""
    message = ". ".join(part for part in (summary.reason, finding) if part) or title
    position = ""
    if run.file and not Path(run.file).is_absolute():
        position = f"file={_property(run.file)},line={run.line},"
    return f"::{level} {position}title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    """Escape text so that it neither ends the command nor begins another."""
    line = " ".join(visible(text).split())[:_MAX_TEXT]
    return line.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape the value of a property, which precedes the message."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
