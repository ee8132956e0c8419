"""Annotations of a GitHub job: each failure at the line of its case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.reporting.report_data import ReportData, RunView

MOST: Final = 10
"""GitHub shows so many errors of a step, and drops the others without a word."""

_LONG: Final = 500


def annotation_commands(report: ReportData) -> Iterator[str]:
    """Workflow commands: an error for a failure of an agent, a warning for a run without a verdict."""
    for level, outcomes in (("error", ("failed",)), ("warning", ("broken", "inconclusive"))):
        found = [account for account in report.accounts if (account.row.outcome or "broken") in outcomes]
        for account in found[: MOST if len(found) <= MOST else MOST - 1]:
            yield _command(level, account)
        if len(found) > MOST:
            more = f"{len(found) - MOST + 1} more of {len(found)} runs; the job's summary counts all of them"
            yield f"::{level} title=toolemu::{_data(more)}"


def _command(level: str, account: RunView) -> str:
    row = account.row
    title = f"{row.outcome or 'broken'}: {row.case} ({row.agent}{f', trial {row.trial}' if row.trial > 1 else ''})"
    why = account.findings[0].outcome if account.findings else ""
    message = ". ".join(part for part in (row.reason, why) if part) or title
    place = ""
    if account.file and not Path(account.file).is_absolute():
        place = f"file={_property(account.file)},line={account.line},"
    return f"::{level} {place}title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    """Text in which nothing ends the command, or begins another."""
    line = " ".join(plain(text).split())[:_LONG]
    return line.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """The same for what stands before the message."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
