"""The queue of drafts: each with its check report, its difference from its base, an editor, and the decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pytest_toolemu.authoring.drafts.draft_store import Draft
from pytest_toolemu.authoring.drafts.review_queue import PARTS, acceptance, reviewer_name
from pytest_toolemu.authoring.json_schemas import schema_of
from pytest_toolemu.core.run import sha256
from pytest_toolemu.errors import ToolemuError, UsageError
from pytest_toolemu.ui.context import context_of, json_object, page

_LONGEST: Final = 200_000
"""Characters of a draft that can be edited."""

Answer = Callable[[Request, Draft, dict[str, Any]], Response]


def review_list(request: Request) -> Response:
    """Show the drafts that wait for a person, and how many were accepted."""
    queue = context_of(request).drafts
    drafts = queue.undecided()
    rows = acceptance(draft.record for draft in queue.store.drafts()) if queue.store.folder.is_dir() else ()
    return page(request, "review_queue.html.j2", drafts=drafts, rows=rows, folder=queue.store.folder, part_of=_part)


def review(request: Request) -> Response:
    """Show a draft with its check report. It is checked first if that was never done."""
    queue, draft = context_of(request).drafts, _draft(request)
    if draft.record.results is None and not context_of(request).rules.read_only:
        draft, _ = queue.check(draft)
    text = draft.path.read_text(encoding="utf-8", errors="replace")
    if len(text) > _LONGEST:
        raise HTTPException(413, f"{draft.path} has {len(text):,} characters; edit it elsewhere")
    return page(
        request,
        "review.html.j2",
        draft=draft,
        part=_part(draft),
        text=text,
        hash=sha256(text),  # of the text that is shown, even if the file has changed since it was read
        base=queue.base(draft),
        longest=_LONGEST,
    )


def schema(request: Request) -> Response:
    """Answer with the JSON Schema of cases or toolkits, for completion in the editor."""
    content = schema_of("case" if request.path_params["part"] == "cases" else "toolkit")
    return JSONResponse(content, headers={"cache-control": "private, max-age=3600"})


def _lint(request: Request, draft: Draft, body: dict[str, Any]) -> Response:
    findings, diff = context_of(request).drafts.lint(draft, _text(body, "text"))
    problems = [
        {
            "row": max(0, problem.line - 1),
            "column": max(0, problem.column - 1),
            "level": finding.level,
            "message": f"{finding.message} [{finding.rule}]",
        }
        for problem, finding in findings
    ]
    return JSONResponse({"problems": problems, "diff": diff})


def _save(request: Request, draft: Draft, body: dict[str, Any]) -> Response:
    saved = context_of(request).drafts.save(draft, _text(body, "text"), _text(body, "hash"))
    if saved is None:
        text = "the file was changed by someone else; reload the page, and repeat your changes"
        return PlainTextResponse(text, status_code=409)
    checked, after = saved
    report = page(request, "check_report.html.j2", draft=checked)
    return JSONResponse({"hash": after, "report": bytes(report.body).decode()})


def _accept(request: Request, draft: Draft, body: dict[str, Any]) -> Response:
    queue = context_of(request).drafts
    path = queue.accept(
        draft, reviewer_name(_text(body, "reviewer")), _text(body, "reason").strip(), _text(body, "hash")
    )
    return JSONResponse({"message": f"accepted: {path}"})


def _reject(request: Request, draft: Draft, body: dict[str, Any]) -> Response:
    reviewer, reason = reviewer_name(_text(body, "reviewer")), _text(body, "reason").strip()
    if not reason:
        raise UsageError("give the reason for which you reject the draft, so that it is not drafted again")
    moved = context_of(request).drafts.reject(draft, reviewer, reason, _text(body, "hash"))
    return JSONResponse({"message": f"rejected: {moved.path}"})


_ACTIONS: Final[dict[str, Answer]] = {"lint": _lint, "save": _save, "accept": _accept, "reject": _reject}


async def act(request: Request) -> Response:
    """Do what a button of the page asks for. What the person can correct is answered as text."""
    body = await json_object(request)
    draft = await run_in_threadpool(_draft, request)
    try:
        return await run_in_threadpool(_ACTIONS[request.url.path.rpartition("/")[2]], request, draft, body)
    except ToolemuError as error:
        return PlainTextResponse(str(error).removeprefix("--"), status_code=400)


def _draft(request: Request) -> Draft:
    part, name = request.path_params["part"], request.path_params["name"]
    draft = context_of(request).drafts.find(part, name) if part in PARTS else None
    if draft is None:
        raise HTTPException(404, f"no draft {name!r} waits for a decision")
    return draft


def _part(draft: Draft) -> str:
    return "toolkits" if draft.record.is_toolkit else "cases"


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name, "")
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise UsageError(f"{name} is not a text of at most {_LONGEST:,} characters")
    return value


ROUTES = (
    Route("/review", review_list),
    Route("/review/schemas/{part}", schema),
    Route("/review/{part}/{name}", review),
    *(Route(f"/review/{{part}}/{{name}}/{action}", act, methods=["POST"], name=action) for action in _ACTIONS),
)
