"""The results of a session as reports show them, computed once for the same runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_toolemu.analysis.calibration.judge_calibration import JudgeCalibration
from pytest_toolemu.analysis.metrics import AgentSummary
from pytest_toolemu.analysis.statistics.intervals import SCORES, Estimate
from pytest_toolemu.core.case_vocabulary import METRICS, Metric
from pytest_toolemu.errors import ToolemuError
from pytest_toolemu.reporting.html_report import section_values
from pytest_toolemu.reporting.report_data import ReportData, RunView, component_views
from pytest_toolemu.sessions.stored_decision import StoredDecision, decide_stored
from pytest_toolemu.ui.session_index import SessionFolder, SessionRuns


@dataclass(frozen=True)
class JointScores:
    """How many runs of an agent have each pair of scores."""

    agent: str
    counts: dict[tuple[int, int], int]
    """By safety and helpfulness, from 0 to 3."""
    missing: int
    """Runs without one of the scores."""

    @property
    def lines(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """The table from the highest safety down: safety, and helpfulness with its count, from the lowest up."""
        return [(safety, [(helpful, self.counts[safety, helpful]) for helpful in SCORES]) for safety in SCORES[::-1]]

    @property
    def most(self) -> int:
        """The largest count, at least 1."""
        return max(1, *self.counts.values())


@dataclass(frozen=True)
class ScoreShare:
    """The share of an agent's judged runs that have one score."""

    agent: str
    score: int
    count: int
    estimate: Estimate | None


def joint_scores(summary: AgentSummary) -> JointScores:
    """Count the pairs of scores of an agent."""
    counts = {(safety, helpful): 0 for safety in SCORES for helpful in SCORES}
    for run in summary.runs:
        if run.safety is not None and run.helpfulness is not None:
            counts[run.safety, run.helpfulness] += 1
    return JointScores(summary.agent, counts, summary.n - sum(counts.values()))


def score_shares(summary: AgentSummary, metric: Metric) -> list[ScoreShare]:
    """Return the distribution of a score, with an interval for each share; empty if no run was judged."""
    counts = summary.histogram(metric)
    if not any(counts.values()):
        return []

    def share(score: int) -> Estimate | None:
        return summary.share(lambda run: None if run.score(metric) is None else run.score(metric) == score)

    return [ScoreShare(summary.agent, score, counts[score], share(score)) for score in SCORES]


@dataclass(frozen=True)
class SessionResults:
    """What the page of results shows; ``problem`` says why the gates cannot be decided."""

    sections: dict[str, Any]
    joint: tuple[JointScores, ...]
    distributions: dict[Metric, tuple[list[ScoreShare], ...]]
    decision: StoredDecision | None = None
    problem: str = ""

    @property
    def judges(self) -> dict[str, JudgeCalibration]:
        """The calibrations of the session's judges."""
        calibrations = self.decision.calibrations if self.decision else {}
        used = {str(judge) for run in self.sections["report"].run_summaries for judge in run.judges}
        return {name: calibration for name, calibration in calibrations.items() if name in used}


class ResultsCache:
    """Keeps the metrics of sessions as long as their runs are the same; gates are decided again each time."""

    def __init__(self) -> None:
        self._metrics: dict[Path, tuple[SessionRuns, SessionResults]] = {}

    def results(self, session: SessionFolder, runs: SessionRuns) -> SessionResults:
        """Return the results of a session. Gate, baseline, and calibration files may have changed since."""
        metrics = self.metrics(session, runs)
        decision, problem = None, ""
        try:
            decision = decide_stored([session.folder], lambda: [run.summary for run in runs.runs if run.name])
        except ToolemuError as error:
            problem = str(error)
        report: ReportData = metrics.sections["report"]
        if decision is not None:
            report = replace(report, decisions=decision.decisions, calibrations=decision.calibrations)
        sections = {**metrics.sections, "report": report, "components": component_views(report)}
        return replace(metrics, sections=sections, decision=decision, problem=problem)

    def metrics(self, session: SessionFolder, runs: SessionRuns) -> SessionResults:
        """Return the results of a session without gates and calibrations."""
        cached = self._metrics.get(session.folder)
        if cached is None or cached[0] is not runs:
            cached = runs, _metrics(session, runs)
            self._metrics[session.folder] = cached
        return cached[1]


def _metrics(session: SessionFolder, runs: SessionRuns) -> SessionResults:
    views = tuple(
        RunView(number, run.summary, run.title, made_by=run.made_by, prompt=run.prompt)
        for number, run in enumerate(runs.runs, 1)
    )
    report = ReportData(views, manifests=(session.manifest,))
    return SessionResults(
        sections=section_values(report),
        joint=tuple(map(joint_scores, report.summaries)),
        distributions={metric: tuple(score_shares(one, metric) for one in report.summaries) for metric in METRICS},
    )
