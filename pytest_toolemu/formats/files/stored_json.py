"""Reads JSON files that a session, a command, or a person has written: strictly, of bounded size, with clear errors."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.formats.validation_messages import KEY, explain, format_location

M = TypeVar("M", bound=BaseModel)

MAX_BYTES: Final = 64 * 1024 * 1024
"""The maximum size of a manifest, baseline, calibration etc. The manifest of 100,000 merged runs has about 10 MB."""

_POSITION: Final = re.compile(r"^Invalid JSON: (.*) at line (\d+) column (\d+)$")


def read_record(path: Path, model: type[M], *, expected: str, remedy: str) -> M:
    """Return a JSON file as a record. Raise FileNotFoundError if it does not exist.

    Raise UsageError if it cannot be read: one sentence with the path, the location in the file, the problem, and the
    ``remedy``. ``expected`` names the expected content, such as ``a baseline``.
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
        raise UsageError(f"{path}: not {expected} that this version reads: {reason}; {remedy}") from None


def first_problem(model: type[BaseModel], raw: bytes | str, details: Sequence[ErrorDetails]) -> str:
    """Return the first problem that pydantic reports for JSON text, with its line and column or its location."""
    if details[0]["type"] == "json_invalid":
        position = _POSITION.match(details[0]["msg"])
        return f"line {position[2]}, column {position[3]}: {position[1]}" if position else details[0]["msg"]
    loc, message = explain(model, _value(raw), details[:1])[0]
    location = format_location(tuple(part for part in loc if part != KEY))
    return message if not location or message.startswith(location) else f"{location}: {message}"


def _value(raw: bytes | str) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):  # pydantic's parser accepts slightly more
        return None
