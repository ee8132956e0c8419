"""What the pages of the application share, and how a page becomes a response."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from pytest_toolemu.analysis.calibration.labels import LabelingTask, label_file, sample_runs
from pytest_toolemu.authoring.drafts.review_queue import ReviewQueue
from pytest_toolemu.formats.text import clock_text
from pytest_toolemu.reporting.html_report import page_environment, template_text
from pytest_toolemu.sessions.store import read_runs
from pytest_toolemu.ui.playground import Playground
from pytest_toolemu.ui.run_filter import query_text
from pytest_toolemu.ui.security import AccessRules
from pytest_toolemu.ui.session_index import ReadingProgress, SessionFolder, SessionIndex, SessionRuns
from pytest_toolemu.ui.session_report import ResultsCache

if TYPE_CHECKING:
    import jinja2

NAVIGATION: Final = (
    ("Sessions", "/"),
    ("Compare", "/compare"),
    ("Label", "/label"),
    ("Review", "/review"),
    ("Playground", "/playground"),
)
"""Titles and paths in the header of every page."""

SESSION_TABS: Final = (("Results", "results"), ("Runs", "runs"))
"""Titles and last parts of the paths of the pages of one session."""

HIDDEN_IF_READ_ONLY: Final = ("/playground",)
"""Paths in ``NAVIGATION`` of pages that are of no use without changing something."""

_MAX_TEXT: Final = 500
_THEMES: Final = ("light", "dark")


@dataclass(frozen=True)
class ProjectFolders:
    """Where a project has its files besides the run directory. The folders need not exist."""

    labels: Path = Path("labels")
    cases: Path = Path("cases")
    drafts: Path = Path("drafts")
    suite: Path = Path()
    """Where accepted drafts move: the folder with ``cases/`` and ``toolkits/``."""


# Drawing a sample reads every record of its session, so the latest ones are kept.
@lru_cache(8)
def _sample(session: Path, modified: int, size: int, seed: int) -> list[tuple[Path, str]]:
    del modified
    return sample_runs(read_runs([session]), size, seed)


@dataclass(frozen=True)
class UiContext:
    """Everything that pages use: the sessions of a run directory, other folders, and who may do what."""

    directory: Path
    rules: AccessRules
    folders: ProjectFolders = ProjectFolders()
    index: SessionIndex = field(init=False)
    results: ResultsCache = field(default_factory=ResultsCache, init=False)
    playground: Playground = field(init=False)
    drafts: ReviewQueue = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "drafts", ReviewQueue(self.folders.drafts, self.folders.suite))
        object.__setattr__(self, "index", SessionIndex(self.directory))
        object.__setattr__(self, "playground", Playground(self.index.directory, self.folders.cases))

    def labeling_task(self, session: Path, annotator: str, size: int, seed: int) -> LabelingTask:
        """Return what an annotator is asked to label. UsageError for a name that cannot be a file name."""
        file = label_file(self.folders.labels, annotator)
        return LabelingTask(_sample(session, session.stat().st_mtime_ns, size, seed), file)

    def label_files(self) -> list[Path]:
        """Return the label files, sorted."""
        files = self.folders.labels.glob("*")
        return sorted(path for path in files if path.suffix in (".jsonl", ".csv") and path.is_file())


def context_of(request: Request) -> UiContext:
    """Return the context of the application that received a request."""
    return cast("UiContext", request.app.state.ui)


def session_of(request: Request) -> SessionFolder:
    """Return the session that the path of a request names. Raise HTTPException if there is none."""
    return session_of_id(context_of(request), request.path_params["session"])


def listed_session_of(request: Request) -> SessionFolder | None:
    """Return the session of a row in the list; None if its folder was deleted, and the list will soon lose the row.

    An error would be reported in the console of the browser, although nothing is wrong.
    """
    return context_of(request).index.session(request.path_params["session"])


def session_of_id(ui: UiContext, session_id: str) -> SessionFolder:
    """Return the session with this ID. Raise HTTPException if there is none."""
    session = ui.index.session(session_id)
    if session is None:
        raise HTTPException(404, f"there is no session {session_id!r} in the run directory")
    return session


def measured(session: SessionFolder) -> SessionFolder:
    """Return the session. Raise HTTPException if no figures may be made of it."""
    if not session.is_measurement:
        raise HTTPException(404, f"a person played the runs of {session.id!r} by hand, so there are no figures of them")
    return session


async def json_object(request: Request) -> dict[str, Any]:
    """Return the object in the body of a request. Raise HTTPException if it is something else."""
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise HTTPException(400, "the body is not a JSON object")
    return body


class StillReadingError(Exception):
    """The records of a session are being read; the browser asks again."""

    def __init__(self, progress: ReadingProgress) -> None:
        super().__init__(f"{progress.read} of {progress.total} records")
        self.progress = progress


def runs_of(request: Request, session: SessionFolder) -> SessionRuns:
    """Return the runs of a session. Raise StillReadingError if there are so many that a page shows the progress."""
    runs = context_of(request).index.runs_or_progress(session)
    if isinstance(runs, ReadingProgress):
        raise StillReadingError(runs)
    return runs


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a template with these values, and with what ``base.html.j2`` needs.

    ``longest`` is the number of characters after which the filter ``shown`` shortens a text.
    """
    ui = context_of(request)
    theme = request.cookies.get("theme", "")
    text = (
        _environment()
        .get_template(template)
        .render(
            csrf=ui.rules.csrf,
            hidden_pages=HIDDEN_IF_READ_ONLY if ui.rules.read_only else (),
            directory=str(ui.directory),
            path=request.scope["path"],
            read_only=ui.rules.read_only,
            theme=theme if theme in _THEMES else "",
            **({"longest": _MAX_TEXT} | values),
        )
    )
    return HTMLResponse(text, status)


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = page_environment()
    packages = ("pytest_toolemu.ui", "pytest_toolemu.reporting")
    environment.loader = jinja2.ChoiceLoader([jinja2.PackageLoader(package) for package in packages])
    environment.globals.update(asset=asset_url, navigation=NAVIGATION, query=query_text)
    environment.globals.update(session_tabs=SESSION_TABS)
    environment.filters.update(clock=clock_text)
    return environment


_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".png": "image/png"}
_SHARED: Final = ("page.css", "transcript.css", "sortable.js")
"""Styles of the static reports, which the application looks like, and the script of their tables."""


@cache
def static_files() -> dict[str, bytes]:
    """Return the content of all files by their path below ``/static/``: a fixed set, which nothing in a URL extends."""
    root = resources.files("pytest_toolemu.ui").joinpath("static")
    contents = {name: template_text(name).encode() for name in _SHARED}
    for folder in ("", "vendor/", "vendor/ace/"):
        contents |= {
            folder + item.name: item.read_bytes() for item in root.joinpath(folder).iterdir() if item.is_file()
        }
    return contents


@cache
def asset_url(name: str) -> str:
    """Return the URL of a file, which changes with its content."""
    return f"/static/{name}?v={hashlib.sha256(static_files()[name]).hexdigest()[:12]}"


def static_file(request: Request) -> Response:
    """Answer with a file; browsers keep it until its URL changes."""
    name = request.path_params["name"]
    if name not in static_files():
        raise HTTPException(404, "there is no such file")
    is_current = asset_url(name).endswith(f"?v={request.query_params.get('v')}")
    headers = {"cache-control": "private, max-age=31536000, immutable" if is_current else "no-cache"}
    return Response(static_files()[name], media_type=_TYPES.get(Path(name).suffix, "text/plain"), headers=headers)
