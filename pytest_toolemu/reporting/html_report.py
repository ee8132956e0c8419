"""The HTML report: a self-contained file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, TypeVar

from markupsafe import Markup, escape

from pytest_toolemu.analysis.emulation_validity import validity_shares
from pytest_toolemu.analysis.metrics import (
    GATE_METRICS,
    AgentSummary,
    AskingPairs,
    Incidence,
    MetricName,
    format_interval,
)
from pytest_toolemu.analysis.rater_agreement import RaterPair, judge_alpha, rater_pairs
from pytest_toolemu.analysis.run_summary import DIMENSIONS, Dimension, RunSummary, slice_values, slices
from pytest_toolemu.analysis.statistics.hypothesis_tests import format_p_value
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.reporting.dialogue_text import ASKING_LABEL, asking_values, user_values
from pytest_toolemu.reporting.report_data import ReportData, RunView, component_views
from pytest_toolemu.reporting.transcript import template_environment

if TYPE_CHECKING:
    import jinja2


_SEPARATOR: Final = re.compile(r"([:/_-])(?=\w)")
_MAX_TEXT: Final = 500
"""Largest number of characters of a text outside the transcripts."""


def report_page(report: ReportData) -> str:
    """Return the report page of one or several sessions; the report data must have transcripts."""
    return render("report.html.j2", "Agent safety report", report.runs, **section_values(report))


def section_values(report: ReportData) -> dict[str, Any]:
    """Return what the templates of the sections show, except the runs."""
    agents = agent_views(report)
    return {
        "report": report,
        "agents": agents,
        "grids": [slice_grid(report, dimension) for dimension in DIMENSIONS],
        "points": score_points(agents),
        "agreements": list(evaluator_agreement(report.run_summaries)),
        "rechecked": recheck_line(report.run_summaries),
        "components": component_views(report),
        "emulation": side_by_side([agent.validity for agent in agents]),
        "judged": any(one.score is not None for run in report.run_summaries for one in run.scores),
        "dialogue": side_by_side([agent.dialogue for agent in agents]),
        "trials": side_by_side([agent.trials for agent in agents]),
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
        _environment()
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
    environment.globals.update(
        labels=METRIC_LABELS,
        asking_label=ASKING_LABEL,
        few=FEW_VERDICTS,
        many=MANY_AGENTS,
        x=x_position,
        y=y_position,
    )
    environment.filters["thousands"] = "{:,}".format
    environment.filters["estimate"] = _estimate
    environment.filters["number"] = _number
    environment.filters["p_value"] = format_p_value
    environment.filters["range"] = _range
    environment.filters["counts"] = _counts
    environment.filters["breakable"] = _breakable
    environment.filters["slices"] = _slices
    return environment


_environment = cache(page_environment)


def _estimate(estimate: Estimate | None, pattern: str) -> str:
    return NO_VALUE if estimate is None else format_interval(estimate, pattern)


def _number(value: float | None, pattern: str) -> str:
    return NO_VALUE if value is None else pattern.format(value)


def _range(estimate: Estimate, pattern: str, scale: float = 1, unit: str = "") -> str:
    """Return the ends of the interval, times ``scale``, with a dash between; or why there is no interval."""
    if estimate.low is None or estimate.high is None:
        return estimate.no_interval
    return f"{pattern.format(scale * estimate.low)}\u2013{pattern.format(scale * estimate.high)}{unit}"


def _counts(counts: Mapping[Any, Any], pattern: str = "{count} {name}") -> str:
    """Return ``3 broken, 1 inconclusive``."""
    return ", ".join(pattern.format(name=name, count=count) for name, count in counts.items())


def _breakable(text: str) -> Markup:
    """Return a name with optional line breaks after its separators, for narrow columns."""
    return Markup(_SEPARATOR.sub(r"\1<wbr>", str(escape(text))))


def _slices(run: RunView) -> str:
    """Return the slices of a run for the filters, as ``|risk_type:data_loss|severity:mild|``."""
    slices = [f"{by}:{visible(value)}" for by in DIMENSIONS for value in slice_values(run.summary, by)]
    return f"|{'|'.join(slices)}|"


def template_text(name: str) -> str:
    """Return a file next to the templates, such as ``page.css``."""
    return resources.files("pytest_toolemu.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


NO_VALUE: Final = "\u2013"
"""Shown in place of a missing value: a dash as wide as a digit."""

MANY_AGENTS: Final = 4
"""From this number of agents, the page compares them in one sortable table instead of a card for each."""

FEW_VERDICTS: Final = 5
"""With fewer judged runs than this, a share is shown without color."""

_HEAT_LEVELS: Final = 5

METRIC_LABELS: Final[dict[MetricName, str]] = {
    "failure_incidence": "Unsafe",
    "mean_safety": "Safety, 0-3",
    "mean_helpfulness": "Helpfulness, 0-3",
    "safe_and_helpful": "Safe and helpful",
    "pass_rate": "Passed",
    "quit_rate": "Quit",
}


def format_estimate(metric: MetricName, estimate: Estimate | None) -> str:
    """Return ``12.5% [8.0%, 18.9%]`` or ``2.31 [2.18, 2.44]``; a dash if no run was judged."""
    if estimate is None:
        return NO_VALUE
    return format_interval(estimate, "{:.1%}" if GATE_METRICS[metric].percent else "{:.2f}")


def format_deviation(std: float | None) -> str:
    """Return ``, SD 0.96``; empty if no run was judged."""
    return "" if std is None else f", SD {std:.2f}"


def format_bounds(summary: AgentSummary) -> str:
    """Return the failure incidence with all missing runs safe, and with all unsafe; empty if none is missing."""
    low, high = summary.incidence.bounds
    return f"{low:.1%} to {high:.1%}" if summary.incidence.missing else ""


@dataclass(frozen=True)
class AgentView:
    """The metrics of one agent; ``index`` selects its color and shape."""

    index: int
    summary: AgentSummary

    @property
    def name(self) -> str:
        """The name of the agent in the session."""
        return self.summary.agent

    @cached_property
    def metrics(self) -> dict[MetricName, Estimate | None]:
        """The estimates of all gate metrics."""
        return {name: metric.estimate(self.summary.runs) for name, metric in GATE_METRICS.items()}

    @cached_property
    def trials(self) -> dict[str, Estimate | None]:
        """The metrics over repeated trials by label; empty if no case has more than one trial."""
        most, summary = self.summary.trials, self.summary
        estimates = {"pass@1: one trial passes": summary.pass_at(1)} if most > 1 else {}
        for k in sorted({2, most} - {1, 0}) if most > 1 else ():
            estimates[f"pass@{k}: one of {k} passes"] = summary.pass_at(k)
            estimates[f"pass^{k}: all of {k} pass"] = summary.pass_hat(k)
        if most > 1:
            estimates[f"{most // 2 + 1}-of-{most}: most trials of a case pass"] = summary.passing(most // 2 + 1)
        return estimates

    @property
    def validity(self) -> dict[str, tuple[int, int]]:
        """The emulation validity by label, each as (count, out_of)."""
        return {label: (count, out_of) for label, count, out_of in validity_shares(self.summary.validity)}

    @cached_property
    def asking(self) -> Estimate | None:
        """The share of pairs of case and twin in which the agent asked in the case and not in the twin."""
        return AskingPairs.of(self.summary.runs).estimate

    @cached_property
    def dialogue(self) -> dict[str, str]:
        """How the agent asked the user in conversations, and how the user replied, by label; empty without any."""
        return asking_values(self.summary.runs) | user_values(self.summary.runs)

    @property
    def bounds(self) -> str:
        """The failure incidence with all missing runs safe, and with all unsafe; empty if none is missing."""
        return format_bounds(self.summary)


@dataclass(frozen=True)
class GridCell:
    """One agent in one slice."""

    summary: AgentSummary

    @property
    def agent(self) -> str:
        """The name of the agent in the session."""
        return self.summary.agent

    @property
    def incidence(self) -> Incidence:
        """The failure incidence, which the heat map shows."""
        return self.summary.incidence

    @property
    def bounds(self) -> str:
        """The failure incidence with all missing runs safe, and with all unsafe; empty if none is missing."""
        return format_bounds(self.summary)

    @property
    def passed(self) -> Estimate | None:
        """The share of runs with a verdict that passed."""
        return GATE_METRICS["pass_rate"].estimate(self.summary.runs)

    @property
    def few(self) -> bool:
        """Whether there are too few judged runs for a color."""
        return self.incidence.judged < FEW_VERDICTS

    @property
    def level(self) -> int:
        """The color level from 0 to 4, one for each fifth of the range."""
        return min(_HEAT_LEVELS - 1, int((self.incidence.rate or 0) * _HEAT_LEVELS))


@dataclass(frozen=True)
class SliceGrid:
    """Failure incidence by the values of one dimension, with a cell for each agent; the riskiest values first."""

    dimension: Dimension
    lines: tuple[tuple[str, tuple[GridCell, ...]], ...]

    @property
    def title(self) -> str:
        """The dimension in words."""
        return self.dimension.replace("_", " ")

    @cached_property
    def has_missing(self) -> bool:
        """Whether some run has no safety verdict."""
        return any(cell.incidence.missing for _, cells in self.lines for cell in cells)

    @cached_property
    def has_costs(self) -> bool:
        """Whether some run has costs."""
        return any(cell.summary.costs for _, cells in self.lines for cell in cells)


@dataclass(frozen=True)
class EvaluatorAgreement:
    """The agreement of the evaluators of one metric."""

    metric: Metric
    pairs: tuple[RaterPair, ...]
    alpha: Estimate | None


def agent_views(report: ReportData) -> list[AgentView]:
    """Return the views of all agents of the report."""
    return [AgentView(index, summary) for index, summary in enumerate(report.summaries)]


def slice_grid(report: ReportData, dimension: Dimension) -> SliceGrid:
    """Return the failure incidence of every agent in every slice of a dimension."""
    by_agent = {summary.agent: slices(summary.runs, dimension) for summary in report.summaries}
    values = slices(report.run_summaries, dimension)
    lines = []
    for value, runs in values.items():
        cells = tuple(
            GridCell(AgentSummary(agent, slices_of_agent.get(value, ()))) for agent, slices_of_agent in by_agent.items()
        )
        lines.append((-(AgentSummary("", runs).incidence.rate or 0), value, cells))
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


def recheck_line(runs: Sequence[RunSummary]) -> str:
    """Return a sentence on the runs whose checks were replaced by those of later case files; empty without any."""
    count = sum(bool(run.rechecked) for run in runs)
    if not count:
        return ""
    changed = sum(run.rechecked == "changed" for run in runs)
    return (
        f"{count:,} of {counted(len(runs), 'run')} rechecked with later case files (toolemu judge --cases); "
        f"in {changed:,} of them, the checks have changed since the run"
    )


LEFT: Final = 44.0
TOP: Final = 14.0
SIDE: Final = 300.0
"""The size of the square plot in pixels, which has room for its axes to the left and below."""

_MAX_SCORE: Final = 3.0


@dataclass(frozen=True)
class ScorePoint:
    """The position of an agent, mean helpfulness to the right and mean safety upward, with both intervals."""

    agent: AgentView
    x: float
    y: float
    x_ends: tuple[float, float]
    y_ends: tuple[float, float]


def x_position(value: float) -> float:
    """Return the x coordinate of a score from 0 to 3."""
    return round(LEFT + SIDE * value / _MAX_SCORE, 1)


def y_position(value: float) -> float:
    """Return the y coordinate of a score from 0 to 3."""
    return round(TOP + SIDE * (1 - value / _MAX_SCORE), 1)


def score_points(agents: list[AgentView]) -> list[ScorePoint]:
    """Return the points of all agents that have both scores."""
    points = []
    for agent in agents:
        safety, helpfulness = agent.summary.safety, agent.summary.helpfulness
        if safety is None or helpfulness is None:
            continue
        (left, right), (low, high) = _ends(helpfulness), _ends(safety)
        x_ends, y_ends = (x_position(left), x_position(right)), (y_position(low), y_position(high))
        points.append(ScorePoint(agent, x_position(helpfulness.value), y_position(safety.value), x_ends, y_ends))
    return points


def _ends(estimate: Estimate) -> tuple[float, float]:
    """Return the interval, or the value twice if there is none."""
    if estimate.low is None or estimate.high is None:
        return estimate.value, estimate.value
    return estimate.low, estimate.high
