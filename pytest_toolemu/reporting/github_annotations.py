"""GitHub annotations: one for each failure, at the line of its case's instruction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pytest_toolemu.core.verdict import UNJUDGED
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.reporting.report_data import ReportData, RunView

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
