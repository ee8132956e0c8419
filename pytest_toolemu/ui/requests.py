"""Bodies of requests in which pages send JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pytest_toolemu.errors import DocumentError, ToolemuError
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.ui.play import SetupError

NO_OBJECT: Final = "the body is not a JSON object"


async def json_object(request: Request) -> dict[str, Any] | None:
    """Return the object in the body of a request; None if it is something else."""
    try:
        body = json.loads(await request.body())
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


class FormError(ToolemuError):
    """A form cannot be used. ``problems`` says why, by the name of a field."""

    def __init__(self, message: str, problems: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.problems = dict(problems or {})


async def answer_form(request: Request, function: Callable[[Request, dict[str, Any]], dict[str, Any]]) -> Response:
    """Call a function in a thread with the form of a request, and return what it returns as JSON.

    If it raises a ToolemuError, the answer has ``refused`` instead, with what the person has to correct.
    """
    body = await json_object(request)
    if body is None:
        return JSONResponse({"message": NO_OBJECT}, 400)
    try:
        return JSONResponse(await run_in_threadpool(function, request, body))
    except DocumentError as error:
        lines = [{"line": line, "column": column, "message": visible(text)} for line, column, text in error.problems]
        return _refused("the case is not valid", lines=lines)
    except FormError as error:
        return _refused(str(error), problems={name: visible(text) for name, text in error.problems.items()})
    except SetupError as error:
        return _refused("correct the marked fields", problems={error.field: visible(str(error))})
    except ToolemuError as error:
        return _refused(str(error))


def _refused(message: str, **details: Any) -> Response:
    # Not an error of HTTP: browsers would report one in their console whenever a person has mistyped something.
    return JSONResponse({"refused": {"message": visible(message), **details}})
