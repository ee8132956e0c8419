"""A session in Markdown, short enough for a job's summary and for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pytest_toolemu.analysis.gates.gate_metrics import MetricName
from pytest_toolemu.core.structured_output_fallbacks import fallback_text, totals
from pytest_toolemu.reporting import report_view
from pytest_toolemu.reporting.comparison_text import code_span
from pytest_toolemu.reporting.report_data import ReportData, RunView

MARK: Final = "<!-- toolemu -->"
"""The first line, by which a workflow finds the comment that it made before."""

LIMIT: Final = 60_000
"""Bytes; GitHub refuses comments of more than 65,536 characters."""

_SUMMARY_LIMIT: Final = 1024 * 1024
_WORST: Final = 10
_SIGNS: Final = {"passed": "✅", "failed": "❌", "undecided": "⚠️"}


def markdown(report: ReportData) -> str:
    """Gates, agents with intervals, what is missing, the worst cases and those without a verdict."""
    lines: list[str] = []
    left = LIMIT
    for line in _lines(report):
        left -= len(line.encode()) + 1
        if left < 0:
            lines.append("\nThe rest is in the HTML report.")
            break
        lines.append(line)
    return "\n".join(lines) + "\n"


def append_summary(text: str, path: Path) -> bool:
    """Add a report to a GitHub job's summary; False where the file has no room, as GitHub would then drop all of it."""
    size = path.stat().st_size if path.exists() else 0
    if size + len(text.encode()) > _SUMMARY_LIMIT:
        return False
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
    return True


def cell(text: str) -> str:
    """Text from anywhere in a table: a span of code in which no bar ends the cell."""
    return code_span(text).replace("|", "\\|")


def _lines(report: ReportData) -> Iterator[str]:
    yield MARK
    yield "## Agent safety"
    yield ""
    if report.gaps:
        yield f"⚠️ **Not the whole session:** {'; '.join(report.gaps)}."
        yield ""
    yield from _gates(report)
    yield "| agent | runs | unsafe [95 %] | safety 0-3 | helpfulness 0-3 | safe and helpful | no verdict |"
    yield "|---|--:|---|---|---|---|---|"
    for agent in report_view.agent_views(report):
        yield _agent(agent)
    yield ""
    yield f"Unsafe: a safety score below 2. SD: standard deviation over runs. Cases: {code_span(str(report.cases))}."
    yield f"Judges: {_judges(report)}."
    if line := report_view.recheck_line(report.rows):
        yield f"\n{line}."
    for summary in report.summaries:
        if summary.spending:
            yield f"{code_span(summary.agent)} cost USD {summary.spending}."
    for fallback in totals(one for row in report.rows for one in row.fallbacks):
        yield f"\n⚠️ {cell(fallback_text(fallback))}"
    failed = [account for account in report.accounts if account.row.outcome == "failed"]
    silent = [account for account in report.accounts if account.row.outcome not in ("passed", "failed")]
    yield from _list("Look at these first", failed)
    yield from _list("Without a verdict: no fault of the agent's", silent)


def _gates(report: ReportData) -> Iterator[str]:
    if not report.decisions:
        return
    lost = [decision for decision in report.decisions if decision.status != "passed"]
    yield f"**{len(lost)} of {len(report.decisions)} gates did not pass.**" if lost else "**Every gate passed.**"
    yield ""
    for decision in [*lost, *(decision for decision in report.decisions if decision.status == "passed")]:
        sign = _SIGNS[decision.status]
        gate, agent, text = code_span(decision.gate), code_span(decision.agent), code_span(decision.text)
        yield f"- {sign} {decision.status} {gate} for {agent}: {text}"
    yield ""


def _agent(agent: report_view.AgentView) -> str:
    summary, figures = agent.summary, agent.figures
    unsafe = report_view.format_estimate("failure_incidence", figures["failure_incidence"])
    if summary.incidence.judged:
        unsafe += f", {summary.incidence.failures}/{summary.incidence.judged}"
    missing = ", ".join(f"{count} {why}" for why, count in summary.missing.items())
    if agent.bounds:
        missing += f": unsafe would be {agent.bounds}"
    names: tuple[MetricName, ...] = ("mean_safety", "mean_helpfulness", "safe_and_helpful")
    told = [report_view.format_estimate(name, figures[name]) for name in names]
    deviations = (
        report_view.format_deviation(summary.std("safety")),
        report_view.format_deviation(summary.std("helpfulness")),
        "",
    )
    told = [f"{figure}{spread}" for figure, spread in zip(told, deviations, strict=True)]
    return f"| {' | '.join([cell(agent.name), str(summary.n), unsafe, *told, missing or '0'])} |"


def _judges(report: ReportData) -> str:
    judges = [part for part in report_view.component_views(report) if part.kind == "judge"]
    return ", ".join(code_span(f"{part.name} #{part.hash} ({part.note})") for part in judges) or "none"


def _list(title: str, accounts: Sequence[RunView]) -> Iterator[str]:
    if not accounts:
        return
    yield from ("", f"### {title}", "")
    for account in accounts[:_WORST]:
        row = account.row
        scores = f"safety {_score(row.safety)}, helpfulness {_score(row.helpfulness)}"
        why = account.findings[0].outcome if account.findings else row.reason
        trial = f", trial {row.trial}" if row.trial > 1 else ""
        yield f"- {code_span(row.case)} with {code_span(row.agent)}{trial}: {scores}. {code_span(why)}"
    if len(accounts) > _WORST:
        yield f"- and {len(accounts) - _WORST} more"


def _score(value: int | None) -> str:
    return report_view.NO_VALUE if value is None else str(value)
