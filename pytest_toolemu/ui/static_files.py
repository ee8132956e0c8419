"""The styles and scripts of the application: a fixed set of files of this package, which nothing in a URL extends."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pytest_toolemu.reporting.html_report import template_text

_SHARED: Final = ("page.css", "transcript.css", "sortable.js")
"""Styles of the static reports, which the application looks like, and the script of their tables."""

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


@dataclass(frozen=True)
class StaticFile:
    """The content of a file, with a version for the caches of browsers."""

    content: bytes
    media_type: str

    @property
    def version(self) -> str:
        """A hash of the content."""
        return hashlib.sha256(self.content).hexdigest()[:12]


@cache
def static_files() -> dict[str, StaticFile]:
    """Return all files by their path below ``/static/``."""
    root = resources.files("pytest_toolemu.ui").joinpath("static")
    contents = {name: template_text(name).encode() for name in _SHARED}
    for folder in ("", "vendor/", "vendor/ace/"):
        for item in root.joinpath(folder).iterdir():
            if item.is_file():
                contents[folder + item.name] = item.read_bytes()
    types = {name: _TYPES.get(name[name.rfind(".") :]) for name in contents}
    return {name: StaticFile(content, types[name] or "text/plain") for name, content in contents.items()}


@cache
def asset_url(name: str) -> str:
    """Return the URL of a file, which changes with its content."""
    return f"/static/{name}?v={static_files()[name].version}"


def static_file(request: Request) -> Response:
    """Answer with a file; browsers keep it until its URL changes."""
    file = static_files().get(request.path_params["name"])
    if file is None:
        raise HTTPException(404, "there is no such file")
    is_current = request.query_params.get("v") == file.version
    headers = {"cache-control": "private, max-age=31536000, immutable" if is_current else "no-cache"}
    return Response(file.content, media_type=file.media_type, headers=headers)
