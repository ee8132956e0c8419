"""The figures of a report, prepared for whoever shows them: HTML, Markdown, JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

from pytest_toolemu.analysis.emulation_validity import validity_shares
from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS, MetricName, format_interval
from pytest_toolemu.analysis.rater_agreement import RaterPair, judge_alpha, rater_pairs
from pytest_toolemu.analysis.run_row import Dimension, RunRow, judges_of, origins, slices
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.analysis.summary import Incidence, Summary
from pytest_toolemu.core.case import Metric
from pytest_toolemu.core.identity import ComponentName
from pytest_toolemu.core.structured_output_fallbacks import fallback_note, totals
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.reporting.report_data import ReportData

NO_VALUE: Final = "\u2013"
"""Stands where there is no figure: a dash as long as a digit."""

MANY_AGENTS: Final = 4
"""Agents from which on a page compares them in one table that can be sorted, instead of a card each."""

FEW_VERDICTS: Final = 5
"""Runs with a verdict below which a share is shown, but not coloured."""

_STEPS: Final = 5

METRIC_LABELS: Final[dict[MetricName, str]] = {
    "failure_incidence": "Unsafe",
    "mean_safety": "Safety, 0-3",
    "mean_helpfulness": "Helpfulness, 0-3",
    "safe_and_helpful": "Safe and helpful",
    "pass_rate": "Passed",
    "quit_rate": "Quit",
}


def format_estimate(metric: MetricName, figure: Estimate | None) -> str:
    """``12.5% [8.0%, 18.9%]`` or ``2.31 [2.18, 2.44]``; a dash where nothing was judged."""
    if figure is None:
        return NO_VALUE
    return format_interval(figure, "{:.1%}" if GATE_METRICS[metric].percent else "{:.2f}")


def format_deviation(std: float | None) -> str:
    """Return ``, SD 0.96``; empty where nothing was judged."""
    return "" if std is None else f", SD {std:.2f}"


def format_bounds(summary: Summary) -> str:
    """What the incidence would be with all that is missing safe, or unsafe; empty where nothing is missing."""
    low, high = summary.incidence.bounds
    return f"{low:.1%} to {high:.1%}" if summary.incidence.missing else ""


@dataclass(frozen=True)
class AgentView:
    """One agent's figures; ``index`` gives it a colour and a shape."""

    index: int
    summary: Summary

    @property
    def name(self) -> str:
        """What the session calls it."""
        return self.summary.agent

    @cached_property
    def figures(self) -> dict[MetricName, Estimate | None]:
        """Every metric that a gate may be about, each with its interval and the runs it is over."""
        return {name: measure.estimate(self.summary.rows) for name, measure in GATE_METRICS.items()}

    @cached_property
    def trials(self) -> dict[str, Estimate | None]:
        """pass@k and pass^k up to the most trials any case has, and most of n; empty for single runs."""
        most, summary = self.summary.trials, self.summary
        found = {"pass@1: one trial passes": summary.pass_at(1)} if most > 1 else {}
        for k in sorted({2, most} - {1, 0}) if most > 1 else ():
            found[f"pass@{k}: one of {k} passes"] = summary.pass_at(k)
            found[f"pass^{k}: all of {k} pass"] = summary.pass_hat(k)
        if most > 1:
            found[f"{most // 2 + 1}-of-{most}: most trials of a case pass"] = summary.passing(most // 2 + 1)
        return found

    @property
    def validity(self) -> dict[str, tuple[int, int]]:
        """How well the world was emulated: (count, out of) of each measure."""
        return {label: (count, out_of) for label, count, out_of in validity_shares(self.summary.validity)}

    @property
    def bounds(self) -> str:
        """What the incidence would be with all that is missing safe, or unsafe; empty where nothing is missing."""
        return format_bounds(self.summary)


@dataclass(frozen=True)
class GridCell:
    """One agent in one slice."""

    summary: Summary

    @property
    def agent(self) -> str:
        """What the session calls it."""
        return self.summary.agent

    @property
    def incidence(self) -> Incidence:
        """What the heat map shows."""
        return self.summary.incidence

    @property
    def bounds(self) -> str:
        """With all that is missing safe, or unsafe; empty where nothing is missing."""
        return format_bounds(self.summary)

    @property
    def passed(self) -> Estimate | None:
        """Share of the runs with a verdict that passed."""
        return GATE_METRICS["pass_rate"].estimate(self.summary.rows)

    @property
    def few(self) -> bool:
        """Too few verdicts for a colour to mean anything."""
        return self.incidence.judged < FEW_VERDICTS

    @property
    def level(self) -> int:
        """0 to 4: the fifth of the scale that the share lies in."""
        return min(_STEPS - 1, int((self.incidence.rate or 0) * _STEPS))


@dataclass(frozen=True)
class SliceGrid:
    """Failure incidence by the values of one dimension, a cell for each agent; the riskiest values first."""

    dimension: Dimension
    lines: tuple[tuple[str, tuple[GridCell, ...]], ...]

    @property
    def title(self) -> str:
        """For a person."""
        return self.dimension.replace("_", " ")

    @property
    def missing(self) -> bool:
        """Whether some run has no safety verdict."""
        return any(cell.incidence.missing for _, cells in self.lines for cell in cells)

    @property
    def paid(self) -> bool:
        """Whether a model was asked for some run, or may have been."""
        return any(cell.summary.costs for _, cells in self.lines for cell in cells)


@dataclass(frozen=True)
class EvaluatorAgreement:
    """How far the evaluators of one metric agree."""

    metric: Metric
    pairs: tuple[RaterPair, ...]
    alpha: Estimate | None


def agent_views(report: ReportData) -> list[AgentView]:
    """Every agent of the report."""
    return [AgentView(index, summary) for index, summary in enumerate(report.summaries)]


def slice_grid(report: ReportData, dimension: Dimension) -> SliceGrid:
    """The incidence of every agent in every slice."""
    by_agent = {summary.agent: slices(summary.rows, dimension) for summary in report.summaries}
    values = slices(report.rows, dimension)
    lines = []
    for value, rows in values.items():
        cells = tuple(GridCell(Summary(agent, found.get(value, ()))) for agent, found in by_agent.items())
        lines.append((-(Summary("", rows).incidence.rate or 0), value, cells))
    return SliceGrid(dimension, tuple((value, cells) for _, value, cells in sorted(lines, key=lambda line: line[:2])))


def evaluator_agreement(rows: Sequence[RunRow]) -> Iterator[EvaluatorAgreement]:
    """The agreement of evaluators, for each metric that several of them judged."""
    metrics: tuple[Metric, ...] = ("safety", "helpfulness")
    for metric in metrics:
        if pairs := rater_pairs(rows, metric):
            yield EvaluatorAgreement(metric, tuple(pairs), judge_alpha(rows, metric))


T = TypeVar("T")


def side_by_side(columns: Sequence[Mapping[str, T]]) -> list[tuple[str, list[T | None]]]:
    """Named figures of several agents as the lines of one table; None where an agent has no such figure."""
    names = dict.fromkeys(name for column in columns for name in column)
    return [(name, [column.get(name) for column in columns]) for name in names]


@dataclass(frozen=True)
class ComponentView:
    """Something the runs were made with; ``hash`` covers all it consists of, ``note`` says what else is known."""

    kind: str
    name: str
    hash: str = ""
    note: str = ""


def component_views(report: ReportData) -> list[ComponentView]:
    """Agents, emulators, judges with their calibration, and the dataset."""
    found = [
        _component("agent", account.made_by, account.row.agent + f", prompt {account.prompt}" * bool(account.prompt))
        for account in report.accounts
        if account.made_by
    ]
    found += [_component("emulator", emulator) for emulator in {row.emulator for row in report.rows} if emulator]
    judges = judges_of(report.rows)
    found += [
        _component("judge", judge, _calibration(str(judge), report) if judge in judges else "rules of the cases")
        for judge in {judge for row in report.rows for judge in row.judges}
    ]
    found.append(_component("dataset", report.cases))
    found += [ComponentView("edition", plain(line)) for line in origins(report.rows)]
    found += [
        ComponentView("server", plain(f"vllm serve {server['model']}"), note=plain(f"vLLM {server.get('version')}"))
        for manifest in report.manifests
        for server in manifest.get("servers", ())
    ]
    found += [
        ComponentView("no structured output", plain(fallback[0]), note=plain(fallback_note(fallback)))
        for fallback in totals(one for row in report.rows for one in row.fallbacks)
    ]
    order = ("agent", "emulator", "judge", "no structured output", "dataset", "edition", "server")
    return sorted(dict.fromkeys(found), key=lambda part: (order.index(part.kind), part.name, part.hash))


def recheck_line(rows: Sequence[RunRow]) -> str:
    """Return a sentence on the runs whose checks were replaced by those of later case files; empty without any."""
    count = sum(bool(row.rechecked) for row in rows)
    if not count:
        return ""
    changed = sum(row.rechecked == "changed" for row in rows)
    return (
        f"{count:,} of {len(rows):,} runs were rechecked with later case files (toolemu judge --cases); "
        f"in {changed:,} of them the checks differ from those at the time of the run"
    )


def _component(kind: str, name: ComponentName, note: str = "") -> ComponentView:
    return ComponentView(kind, name.label, name.hash, note)


def _calibration(judge: str, report: ReportData) -> str:
    """Return what is known of a judge."""
    from pytest_toolemu.analysis.calibration.calibration_file import calibration_status

    return calibration_status(judge, report.calibrations)
