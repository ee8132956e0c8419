"""Writes the reports at the end of a session, in the process that has the run summaries of all cases."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_toolemu.errors import UsageError
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.plugin.session import TerminalNote, ToolemuSession, relative_path

if TYPE_CHECKING:
    from pytest_toolemu.reporting.report_data import ReportData


def is_wanted(session: ToolemuSession) -> bool:
    """Return whether a report is requested, or this is a job of GitHub Actions."""
    requested = session.settings.report or os.environ.get("GITHUB_STEP_SUMMARY") or _in_github()
    return bool(session.run_summaries and requested and not session.is_worker)


def write(services: Services) -> None:
    """Write the requested reports next to the records, and note for the terminal where they are.

    If a report cannot be written, a note says so; verdicts and exit status stay as they are.
    """
    from pytest_toolemu.reporting.markdown import annotation_commands
    from pytest_toolemu.reporting.report_data import read_report
    from pytest_toolemu.reporting.report_files import write_reports

    session = services.session
    formats = session.settings.report
    try:
        report_data = read_report(
            list(session.run_summaries.values()), [session.folder], with_transcripts="html" in formats
        )
        report = replace(report_data, decisions=tuple(session.decisions), calibrations=services.files.calibrations)
        for path in write_reports(report, formats, session.folder):
            session.notes.append(TerminalNote(f"report: {relative_path(path)}"))
        if file := os.environ.get("GITHUB_STEP_SUMMARY"):
            _summarize(session, report, Path(file))
    except (OSError, UsageError) as error:
        session.notes.append(TerminalNote(f"a report could not be written: {error}; {_remedy(session)}", "red"))
        return
    if _in_github():
        session.notes += map(TerminalNote, annotation_commands(report))


def _summarize(session: ToolemuSession, report: ReportData, file: Path) -> None:
    from pytest_toolemu.reporting.markdown import append_summary, markdown

    if not append_summary(markdown(report), file):
        text = f"the job summary {file} is too small for this session, because GitHub accepts 1 MiB per step"
        session.notes.append(TerminalNote(f"{text}; {_remedy(session)}", "yellow"))


def _remedy(session: ToolemuSession) -> str:
    return f"create it later with 'toolemu report {relative_path(session.folder)}'"


def _in_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"
