"""The one reader of JSON that a session, a command or a person has stored: strict records, bounded, in one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.regular_files import read_regular
from pytest_toolemu.formats.validation_messages import KEY, explain, place

M = TypeVar("M", bound=BaseModel)

MAX_BYTES: Final = 64 * 1024 * 1024
"""Of a manifest, a baseline, a calibration and the like; the manifest of 100,000 merged runs has some 10 MB."""

_POSITION: Final = re.compile(r"^Invalid JSON: (.*) at line (\d+) column (\d+)$")


def read_record(path: Path, model: type[M], *, what: str, remedy: str) -> M:
    """Return a JSON file as a record; FileNotFoundError where there is none.

    UsageError for anything else that keeps it from being read: one sentence with the path, the place in the file, what
    is wrong there, and the remedy. ``what`` says what the file should be, such as ``a baseline``.
    """
    try:
        raw = read_regular(path, MAX_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; {remedy}") from None
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        reason = first_problem(model, raw, error.errors(include_url=False))
        raise UsageError(f"{path}: not {what} that this version reads: {reason}; {remedy}") from None


def first_problem(model: type[BaseModel], raw: bytes | str, details: Sequence[ErrorDetails]) -> str:
    """Return the first problem that pydantic found in JSON text, with its line and column or its place."""
    if details[0]["type"] == "json_invalid":
        found = _POSITION.match(details[0]["msg"])
        return f"line {found[2]}, column {found[3]}: {found[1]}" if found else details[0]["msg"]
    loc, message = explain(model, _value(raw), details[:1])[0]
    named = place(tuple(part for part in loc if part != KEY))
    return message if not named or message.startswith(named) else f"{named}: {message}"


def _value(raw: bytes | str) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):  # pydantic's reader takes a little more
        return None
