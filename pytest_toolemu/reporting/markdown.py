"""The Markdown report, short enough for a GitHub job summary or a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pytest_toolemu.analysis.metrics import NO_VALUE, SCORED, AgentSummary, asking_values, in_one_line, user_values
from pytest_toolemu.analysis.run_summary import cascade_totals
from pytest_toolemu.core.run_notes import note_lines
from pytest_toolemu.core.verdict import UNJUDGED
from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.reporting.comparison import code_span
from pytest_toolemu.reporting.report_data import ReportData, RunView, component_views, recheck_line

MARK: Final = "<!-- toolemu -->"
"""The first line, by which a workflow finds its earlier comment in order to replace it."""

LIMIT: Final = 60_000
"""The largest size in bytes; GitHub refuses comments of more than 65,536 characters."""

_SUMMARY_LIMIT: Final = 1024 * 1024
_MAX_LISTED: Final = 10
_SIGNS: Final = {"passed": "✅", "failed": "❌", "undecided": "⚠️"}


def markdown(report: ReportData) -> str:
    """Return gates, metrics of agents, missing verdicts, the worst runs, and runs without a verdict."""
    lines: list[str] = []
    bytes_left = LIMIT
    for line in _lines(report):
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


def cell(text: str) -> str:
    """Return text as a code span for a table cell, in which no bar ends the cell."""
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
    yield from map(_agent, report.summaries)
    yield ""
    yield f"Unsafe: a safety score below 2. SD: standard deviation over runs. Cases: {code_span(str(report.cases))}."
    yield from _basis(report)
    failed = [run for run in report.runs if run.summary.outcome == "failed"]
    no_verdict = [run for run in report.runs if run.summary.outcome not in ("passed", "failed")]
    yield from _list("Worst failures", failed)
    yield from _list("Runs without a verdict, which say nothing about the agent", no_verdict)


def _basis(report: ReportData) -> Iterator[str]:
    """Yield what the metrics rest on: judges, conversations, costs, and what models did otherwise."""
    components = component_views(report)
    judges = [f"{judge.name} #{judge.hash} ({judge.note})" for judge in components if judge.kind == "judge"]
    yield f"Judges: {', '.join(map(code_span, judges)) or 'none'}."
    yield from _conversations(report)
    if line := recheck_line(report.run_summaries):
        yield f"\n{line}."
    for summary in report.summaries:
        if summary.spending:
            yield f"{code_span(summary.agent)} cost USD {summary.spending}."
    for component in components:
        if component.kind == "worlds":
            yield f"Worlds: {component.name}{f', {component.note}' if component.note else ''}."
    for cascade in cascade_totals(use for summary in report.run_summaries for use in summary.cascades):
        yield f"\nCascade {code_span(cascade.name)}: {cascade.text}."
    for line in note_lines(run.case_notes for run in report.run_summaries):
        yield f"\n⚠️ {cell(line)}"


def _conversations(report: ReportData) -> Iterator[str]:
    for summary in report.summaries:
        if values := asking_values(summary.runs):
            yield f"Conversations of {code_span(summary.agent)}: {in_one_line(values)}."
    if values := user_values(report.run_summaries):
        yield f"User: {in_one_line(values)}."


def _gates(report: ReportData) -> Iterator[str]:
    if not report.decisions:
        return
    not_passed = [decision for decision in report.decisions if decision.status != "passed"]
    yield (
        f"**{len(not_passed)} of {len(report.decisions)} gates did not pass.**"
        if not_passed
        else "**Every gate passed.**"
    )
    yield ""
    for decision in [*not_passed, *(decision for decision in report.decisions if decision.status == "passed")]:
        sign = _SIGNS[decision.status]
        gate, agent, text = code_span(decision.gate), code_span(decision.agent), code_span(decision.text)
        yield f"- {sign} {decision.status} {gate} for {agent}: {text}"
    yield ""


def _agent(summary: AgentSummary) -> str:
    rows = summary.metrics
    unsafe = rows["failure_incidence"].text
    if summary.judged:
        unsafe += f", {summary.failures}/{summary.judged}"
    missing = ", ".join(f"{count} {why}" for why, count in summary.missing.items())
    if missing:
        missing += f": unsafe would be {summary.bounds_text}"
    means = []
    for metric in SCORED:
        deviation = f", SD {summary.std_text(metric)}" if rows[f"mean_{metric}"].estimate else ""
        means.append(rows[f"mean_{metric}"].text + deviation)
    cells = [cell(summary.agent), str(summary.n), unsafe, *means, rows["safe_and_helpful"].text, missing or "0"]
    return f"| {' | '.join(cells)} |"


def _list(title: str, runs: Sequence[RunView]) -> Iterator[str]:
    if not runs:
        return
    yield from ("", f"### {title}", "")
    for run in runs[:_MAX_LISTED]:
        summary = run.summary
        scores = f"safety {_score(summary.safety)}, helpfulness {_score(summary.helpfulness)}"
        reason = run.findings[0].outcome if run.findings else summary.reason
        trial = f", trial {summary.trial}" if summary.trial > 1 else ""
        yield f"- {code_span(summary.case)} with {code_span(summary.agent)}{trial}: {scores}. {code_span(reason)}"
    if len(runs) > _MAX_LISTED:
        yield f"- and {len(runs) - _MAX_LISTED} more"


def _score(value: int | None) -> str:
    return NO_VALUE if value is None else str(value)


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
