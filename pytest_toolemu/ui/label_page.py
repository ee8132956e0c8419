"""Labeling: a person judges runs without seeing any verdict, as ``toolemu label`` asks in a terminal."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from pytest_toolemu.analysis.calibration.blind_transcript import blind_case, blind_steps
from pytest_toolemu.analysis.calibration.labels import (
    LABEL_HELP,
    LabelingTask,
    match_labels,
    read_labels,
    reject_ambiguous,
    second_opinions,
)
from pytest_toolemu.analysis.rater_agreement import label_agreements
from pytest_toolemu.authoring.dataset_stats import summarize
from pytest_toolemu.core.case import case_files
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.case_vocabulary import METRICS
from pytest_toolemu.errors import UsageError
from pytest_toolemu.sessions.store import run_files
from pytest_toolemu.ui.context import context_of, json_object, page, session_of, session_of_id
from pytest_toolemu.ui.run_filter import query_text
from pytest_toolemu.ui.session_index import SessionFolder

_SAMPLE: Final = 50
_MAX_SAMPLE: Final = 10_000
_LONGEST: Final = 8_000
"""Characters of a text that a person has to read to judge; the record has the rest."""

_SAVING: Final = threading.Lock()
_ANSWERS: Final = (*LABEL_HELP, "note")


@dataclass(frozen=True)
class Assignment:
    """Which runs of a session someone labels. It is the query of the URL, so that it can be bookmarked."""

    annotator: str
    sample: int
    seed: int

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Assignment:
        """Read the query of a URL. HTTPException for a number that is none, or out of range."""
        return cls(
            query.get("annotator", ""),
            _number(query, "sample", _SAMPLE, 1, _MAX_SAMPLE),
            _number(query, "seed", 0, 0, 2**31),
        )

    def path(self, session: SessionFolder, at: int | None = None) -> str:
        """Return the address of one run of the sample, counted from 0; without it, of the next one without a label."""
        values = {"annotator": self.annotator, "sample": self.sample, "seed": self.seed}
        return f"/label/{session.id}{query_text(values | ({} if at is None else {'at': at}))}"


def start(request: Request) -> Response:
    """Show which sessions there are to label, and ask for the annotator's name."""
    ui = context_of(request)
    sessions = [session for session in ui.index.sessions() if session.records]
    return page(request, "label_start.html.j2", sessions=sessions, folder=ui.folders.labels, files=ui.label_files())


def choose(request: Request) -> Response:
    """Go to the session that was chosen."""
    session = session_of_id(context_of(request), request.query_params.get("session", ""))
    return RedirectResponse(Assignment.of(request.query_params).path(session), status_code=303)


def label(request: Request) -> Response:
    """Show a run without verdicts, with the form for its label; at the end of the sample, what to do next."""
    session, assignment = session_of(request), Assignment.of(request.query_params)
    task = _task(request, session, assignment)
    size = len(task.sampled)
    index = _number(request.query_params, "at", task.next_unlabeled(), 0, size)
    values: dict[str, Any] = {"session": session, "task": task, "assignment": assignment}
    values |= {"index": index, "size": size}
    if index >= size:
        return page(request, "label_done.html.j2", **values)
    run = task.run(index)
    return page(
        request,
        "label.html.j2",
        **values,
        longest=_LONGEST,
        help=LABEL_HELP,
        label=task.label_of(index),
        case=list(blind_case(run)),
        steps=list(blind_steps(run)),
    )


async def save(request: Request) -> Response:
    """Write a label, and answer with the URL of the next run without one."""
    answers = await json_object(request)
    return await run_in_threadpool(_save, request, answers)


def _save(request: Request, answers: dict[str, Any]) -> Response:
    session, assignment = session_of(request), Assignment.of(request.query_params)
    task = _task(request, session, assignment)
    # A record that the session has gained may have moved the run in the sample; its trajectory identifies it.
    trajectory = answers.get("trajectory")
    index = next((at for at, (_, each) in enumerate(task.sampled) if each == trajectory), None)
    if index is None:
        text = "the session has changed, so this run is no longer in the sample; copy your note, and reload the page"
        return PlainTextResponse(text, status_code=409)
    content = {name: answers[name] for name in _ANSWERS if answers.get(name) not in (None, "")}
    try:
        # One thread at a time, because the other labels of the file are written again.
        with _SAVING:
            task.save(index, content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        text = f"{first['loc'][0]}: {first['msg']}, not {first['input']!r}"
        return PlainTextResponse(text, status_code=400)
    except OSError as error:
        problem = f"the label is not saved: {task.file} cannot be written ({error.strerror})"
        remedy = "free disk space, or restart toolemu ui with another folder (--labels)"
        return PlainTextResponse(f"{problem}; {remedy}", status_code=500)
    following = task.next_unlabeled(index + 1)
    return JSONResponse({"next": assignment.path(session, following)})


def _task(request: Request, session: SessionFolder, assignment: Assignment) -> LabelingTask:
    ui, sample, seed = context_of(request), assignment.sample, assignment.seed
    try:
        return ui.labeling_task(session.folder, assignment.annotator, sample, seed)
    except UsageError as error:
        raise HTTPException(400, str(error).removeprefix("--")) from None


def _number(query: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = query.get(name) or str(default)
    if not text.isascii() or not text.isdecimal() or len(text) > 10 or not low <= int(text) <= high:
        raise HTTPException(400, f"{name}: {text!r} is not a number from {low} to {high}")
    return int(text)


def agreement(request: Request) -> Response:
    """Show how judges and people agree about the runs of a session, by all label files."""
    session, folder = session_of(request), context_of(request).folders.labels
    labels = read_labels(context_of(request).label_files())
    files = run_files([session.folder])
    reject_ambiguous(labels, files)
    labeled, unmatched = match_labels(labels, files)
    return page(
        request,
        "agreement.html.j2",
        session=session,
        folder=folder,
        labeled=len(labeled),
        lines=list(label_agreements(labeled)),
        unmatched=len(unmatched),
    )


def opinions(request: Request) -> Response:
    """Show the second opinions on the references of the project's dataset."""
    folder = context_of(request).folders.cases
    opinions = second_opinions(folder)
    cases = [load_case(path).case for path in case_files(folder)] if opinions.labels else []
    summary = summarize(cases, opinions)
    return page(request, "second_opinions.html.j2", summary=summary, folder=folder, metrics=METRICS)


ROUTES = (
    Route("/label", start),
    Route("/label/choose", choose),
    Route("/label/{session}", label),
    Route("/label/{session}", save, methods=["POST"]),
    Route("/label/{session}/agreement", agreement),
    Route("/second-opinions", opinions),
)
