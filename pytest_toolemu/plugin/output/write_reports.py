"""Reports at the end of a session, in the one process that heard of every case."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_toolemu.errors import UsageError
from pytest_toolemu.plugin.session import ToolemuSession, relative

if TYPE_CHECKING:
    from pytest_toolemu.reporting.report_data import ReportData


def wanted(session: ToolemuSession) -> bool:
    """Whether anybody will read one: it was asked for, or this is a job of GitHub Actions."""
    asked = session.settings.report or os.environ.get("GITHUB_STEP_SUMMARY") or _in_github()
    return bool(session.rows and asked and not session.is_worker)


def write(session: ToolemuSession) -> None:
    """Write what was asked for beside the records; what the terminal then says of it is kept with the session.

    A report that cannot be written takes no verdict back: the trouble is told, and the session's status stands.
    """
    from pytest_toolemu.core.environment import versions
    from pytest_toolemu.reporting.github_annotations import annotation_commands
    from pytest_toolemu.reporting.report_data import read_report
    from pytest_toolemu.reporting.report_files import write_reports

    formats = session.settings.report
    try:
        read = read_report(list(session.rows.values()), [session.folder], with_transcripts="html" in formats)
        report = replace(read, decisions=tuple(session.decisions), calibrations=session.calibrations)
        for path in write_reports(report, formats, session.folder, versions()["pytest-toolemu"]):
            session.notes.append((f"report: {relative(path)}", {}))
        if file := os.environ.get("GITHUB_STEP_SUMMARY"):
            _summarize(session, report, Path(file))
    except (OSError, UsageError) as error:
        session.notes.append((f"a report could not be written: {error}; {_remedy(session)}", {"red": True}))
        return
    if _in_github():
        session.notes += [(line, {}) for line in annotation_commands(report)]


def _summarize(session: ToolemuSession, report: ReportData, file: Path) -> None:
    from pytest_toolemu.reporting.markdown import append_summary, markdown

    if not append_summary(markdown(report), file):
        text = f"the job's summary in {file} has no room for this session: GitHub takes 1 MiB of a step"
        session.notes.append((f"{text}; {_remedy(session)}", {"yellow": True}))


def _remedy(session: ToolemuSession) -> str:
    return f"make it later with 'toolemu report {relative(session.folder)}'"


def _in_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"
