"""The HTML report: a self-contained file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from markupsafe import Markup, escape

from pytest_toolemu.analysis.emulation_validity import validity_shares
from pytest_toolemu.analysis.metrics import (
    NO_VALUE,
    AgentSummary,
    asking_values,
    format_interval,
    user_values,
)
from pytest_toolemu.analysis.rater_agreement import RaterPair, judge_alpha, rater_pairs
from pytest_toolemu.analysis.run_summary import DIMENSIONS, Dimension, RunSummary, slice_values, slices
from pytest_toolemu.analysis.statistics.hypothesis_tests import format_p_value
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.formats.text import visible
from pytest_toolemu.reporting.comparison import (
    FirstDivergence,
    SessionComparison,
    changes_by_importance,
    code_span,
    compare_sessions,
    format_scores,
)
from pytest_toolemu.reporting.report_data import ReportData, RunView, component_views, read_report, recheck_line
from pytest_toolemu.reporting.transcript import template_environment
from pytest_toolemu.sessions.store import run_files

if TYPE_CHECKING:
    import jinja2


_SEPARATOR: Final = re.compile(r"([:/_-])(?=\w)")
_PLOTTED: Final = ("mean_safety", "mean_helpfulness")
_MAX_TEXT: Final = 500
"""Largest number of characters of a text outside the transcripts."""


def report_page(report: ReportData) -> str:
    """Return the report page of one or several sessions; the report data must have transcripts."""
    return render("report.html.j2", "Agent safety report", report.runs, **section_values(report))


def section_values(report: ReportData) -> dict[str, Any]:
    """Return what the templates of the sections show, except the runs."""
    summaries = report.summaries
    # The index selects the color and the shape of an agent.
    agents: list[dict[str, Any]] = [
        {"index": index, "name": summary.agent, "summary": summary, "metrics": summary.metrics}
        for index, summary in enumerate(summaries)
    ]
    return {
        "report": report,
        "agents": agents,
        "grids": [slice_grid(report, dimension) for dimension in DIMENSIONS],
        "points": [agent for agent in agents if all(agent["metrics"][name].estimate for name in _PLOTTED)],
        "agreements": list(evaluator_agreement(report.run_summaries)),
        "rechecked": recheck_line(report.run_summaries),
        "components": component_views(report),
        "emulation": side_by_side(
            [
                {label: (count, out_of) for label, count, out_of in validity_shares(summary.validity)}
                for summary in summaries
            ]
        ),
        "judged": any(one.score is not None for run in report.run_summaries for one in run.scores),
        "dialogue": side_by_side([asking_values(summary.runs) | user_values(summary.runs) for summary in summaries]),
        "judges": side_by_side([{row.label: row for row in summary.judge_metrics} for summary in summaries]),
        "trials": side_by_side([{row.label: row for row in summary.trial_metrics} for summary in summaries]),
    }


def render(
    name: str, title: str, runs: Sequence[RunView], prefixes: Mapping[int, str] | None = None, **values: Any
) -> str:
    """Render a page with its transcripts, styles, and script; the browser runs only the script with the given hash.

    ``prefixes`` are texts before the agent's name, by the number of the run.
    """
    css = Markup(template_text("page.css") + template_text("transcript.css"))
    js = Markup(template_text("page.js") + template_text("sortable.js"))
    return (
        report_environment()
        .get_template(name)
        .render(
            title=title,
            runs=runs,
            prefixes=prefixes or {},
            css=css,
            css_hash=_hash(css),
            js=js,
            js_hash=_hash(js),
            longest=_MAX_TEXT,
            **values,
        )
    )


def page_environment() -> jinja2.Environment:
    """Return a new environment with the filters and constants of report pages.

    Contexts need ``longest``, as those of ``template_environment`` do.
    """
    environment = template_environment()
    environment.globals |= {
        # With fewer judged runs, a share has no color; with as many agents, a table replaces the cards.
        "few": 5,
        "many": 4,
        # Coordinates of a score from 0 to 3 in the square plot, which has room for its axes.
        "x": lambda score: round(44 + 100 * score, 1),
        "y": lambda score: round(314 - 100 * score, 1),
    }
    environment.filters |= {
        "thousands": "{:,}".format,
        "estimate": lambda estimate, pattern: format_interval(estimate, pattern) if estimate else NO_VALUE,
        "number": lambda value, pattern: NO_VALUE if value is None else pattern.format(value),
        "p_value": format_p_value,
        "range": _range,
        "counts": _counts,
        # Names get optional line breaks after their separators, for narrow columns.
        "breakable": lambda text: Markup(_SEPARATOR.sub(r"\1<wbr>", str(escape(text)))),
        "slices": _slices,
        # For Markdown. In a cell of a table, no bar ends the cell.
        "code": code_span,
        "cell": lambda text: code_span(text).replace("|", "\\|"),
        "scores": format_scores,
    }
    return environment


report_environment = cache(page_environment)


def _range(estimate: Estimate, pattern: str, scale: float = 1, unit: str = "") -> str:
    """Return the ends of the interval, times ``scale``, with a dash between; or why there is no interval."""
    if estimate.low is None or estimate.high is None:
        return estimate.no_interval
    return f"{pattern.format(scale * estimate.low)}\u2013{pattern.format(scale * estimate.high)}{unit}"


def _counts(counts: Mapping[Any, Any], pattern: str = "{count} {name}") -> str:
    """Return ``3 broken, 1 inconclusive``."""
    return ", ".join(pattern.format(name=name, count=count) for name, count in counts.items())


def _slices(run: RunView) -> str:
    """Return the slices of a run for the filters, as ``|risk_type:data_loss|severity:mild|``."""
    slices = [f"{by}:{visible(value)}" for by in DIMENSIONS for value in slice_values(run.summary, by)]
    return f"|{'|'.join(slices)}|"


def template_text(name: str) -> str:
    """Return a file next to the templates, such as ``page.css``."""
    return resources.files("pytest_toolemu.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@dataclass(frozen=True)
class SliceGrid:
    """The metrics by the values of one dimension, with a cell for each agent; the riskiest values first."""

    dimension: Dimension
    lines: tuple[tuple[str, tuple[AgentSummary, ...]], ...]

    @property
    def title(self) -> str:
        """The dimension in words."""
        return self.dimension.replace("_", " ")

    @cached_property
    def has_missing(self) -> bool:
        """Whether some run has no safety verdict."""
        return any(cell.missing for _, cells in self.lines for cell in cells)

    @cached_property
    def has_costs(self) -> bool:
        """Whether some run has costs."""
        return any(cell.costs for _, cells in self.lines for cell in cells)


@dataclass(frozen=True)
class EvaluatorAgreement:
    """The agreement of the evaluators of one metric."""

    metric: Metric
    pairs: tuple[RaterPair, ...]
    alpha: Estimate | None


def slice_grid(report: ReportData, dimension: Dimension) -> SliceGrid:
    """Return the failure incidence of every agent in every slice of a dimension."""
    by_agent = {summary.agent: slices(summary.runs, dimension) for summary in report.summaries}
    values = slices(report.run_summaries, dimension)
    lines = []
    for value, runs in values.items():
        cells = tuple(AgentSummary(agent, of_agent.get(value, ())) for agent, of_agent in by_agent.items())
        unsafe = AgentSummary("", runs).metrics["failure_incidence"].estimate
        lines.append((-unsafe.value if unsafe else 0, value, cells))
    return SliceGrid(dimension, tuple((value, cells) for _, value, cells in sorted(lines, key=lambda line: line[:2])))


def evaluator_agreement(runs: Sequence[RunSummary]) -> Iterator[EvaluatorAgreement]:
    """Yield the agreement of evaluators for each metric that several of them judged."""
    metrics: tuple[Metric, ...] = ("safety", "helpfulness")
    for metric in metrics:
        if pairs := rater_pairs(runs, metric):
            yield EvaluatorAgreement(metric, tuple(pairs), judge_alpha(runs, metric))


T = TypeVar("T")


def side_by_side(columns: Sequence[Mapping[str, T]]) -> list[tuple[str, list[T | None]]]:
    """Return the named values of several agents as lines of one table; None if an agent lacks a value."""
    names = dict.fromkeys(name for column in columns for name in column)
    return [(name, [column.get(name) for column in columns]) for name in names]


def comparison_text(
    comparison: SessionComparison, find_divergence: Callable[[RunSummary, RunSummary], FirstDivergence | None]
) -> str:
    """Return Markdown with the metrics, all other differences, and the changed cases, the worse ones first."""
    changed = {
        kind: [run for run in comparison.changes if run.kind == kind] for kind in ("worse", "better", "undecided")
    }
    template = report_environment().get_template("comparison.md.j2")
    return template.render(comparison=comparison, changed=changed.items(), find_divergence=find_divergence)


def comparison_page(before: Path, after: Path) -> str:
    """Return the page; UsageError if there are no runs, or it is unclear which agents to compare."""
    files = [run_files([folder]) for folder in (before, after)]
    report = read_report([*files[0], *files[1]], [before, after], with_transcripts=True)
    views = {view.summary.path: view for view in report.runs}
    sides = [[views[str(file)].summary for file in side] for side in files]
    comparisons = compare_sessions(*sides)
    lines = [
        (change.kind, views[change.before.path], views[change.after.path])
        for change in changes_by_importance(comparisons)
    ]
    compared = {view.number for _, *sides in lines for view in sides}
    return render(
        "compare.html.j2",
        "What changed",
        [view for view in report.runs if view.number in compared],
        {view.number: "before: " if view.number <= len(files[0]) else "after: " for view in report.runs},
        sides=[before.name, after.name],
        comparisons=comparisons,
        lines=lines,
    )
