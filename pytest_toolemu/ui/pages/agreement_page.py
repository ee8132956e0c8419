"""The agreement of judges with labels of people, of people with each other, and the second opinions of a dataset."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pytest_toolemu.analysis.calibration.labeled_runs import match_labels, read_labels, reject_ambiguous
from pytest_toolemu.analysis.calibration.second_opinions import second_opinions
from pytest_toolemu.analysis.calibration.validation_table import ValidationTable, validation_table
from pytest_toolemu.authoring.second_opinion_summary import METRICS, SecondOpinionSummary, summarize
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.draft_marks import case_files
from pytest_toolemu.sessions.reader import run_files
from pytest_toolemu.ui.context import context_of, page, session_of


def agreement(request: Request) -> Response:
    """Show the validation table of a session for all label files."""
    session, labels = session_of(request), context_of(request).labels
    table, unmatched = _table(session.folder, labels.files())
    return page(
        request,
        "agreement.html.j2",
        session=session,
        folder=labels.folder,
        table=table,
        unmatched=unmatched,
    )


def opinions(request: Request) -> Response:
    """Show the second opinions on the references of the project's dataset."""
    folder = context_of(request).folders.cases
    return page(request, "second_opinions.html.j2", summary=_opinions(folder), folder=folder, metrics=METRICS)


def _table(session: Path, files: list[Path]) -> tuple[ValidationTable | None, int]:
    """Return the table of the labels that belong to this session, and the number of labels that do not."""
    labels = read_labels(files)
    reject_ambiguous(labels, run_files([session]))
    labeled, unmatched = match_labels(labels, run_files([session]))
    return (validation_table(session.name, labeled) if labeled else None), len(unmatched)


def _opinions(folder: Path) -> SecondOpinionSummary:
    opinions = second_opinions(folder)
    cases = [load_case(path).case for path in case_files(folder)] if opinions.labels else []
    return summarize(cases, opinions)


ROUTES = (Route("/label/{session}/agreement", agreement), Route("/second-opinions", opinions))
