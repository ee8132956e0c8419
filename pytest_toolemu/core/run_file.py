"""Read the file of a run."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from pytest_toolemu.core.case import Case
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.regular_files import read_regular
from pytest_toolemu.formats.stored_json import first_problem

MAX_RUN_BYTES: Final = 256 * 1024 * 1024
"""The largest record of a run that is read."""


def load_run(path: Path) -> Run:
    """A stored run; UsageError when the file is no record of this version."""
    try:
        whole = read_regular(path, MAX_RUN_BYTES)
        text, case = _cut(whole, b"case", b"{}", _ANY_CASE)
        text, toolkits = _cut(text, b"toolkits", b"[]", b"[]")
        run = Run.model_validate_json(text)
        parts = {
            # A case's id is its file's name, so that no record of a case has it.
            "case": _case(case, run.case_id) if case else run.case.model_copy(update={"id": run.case_id}),
            "toolkits": _toolkits(toolkits) if toolkits else run.toolkits,
        }
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; run the case again, or leave it out") from None
    except ValidationError as error:
        raise UsageError(f"{path}: not a record of a run that this version reads ({_reason(whole, error)})") from None
    return run.model_copy(update=parts)


def _reason(whole: bytes, error: ValidationError) -> str:
    """Return what is wrong with a record as a whole, of which only a part was looked at."""
    try:
        Run.model_validate_json(whole)
    except ValidationError as found:
        error = found
    return first_problem(Run, whole, error.errors(include_url=False))


# Every member said: what is not is copied from its default, which takes longer.
_ANY_CASE: Final = Case(title="-", toolkits=("-",), instruction="-").model_dump_json().encode()


def _cut(text: bytes, name: bytes, brackets: bytes, instead: bytes) -> tuple[bytes, bytes]:
    """A record with something else for one of its members, and the member; empty where the record has no such.

    For records as this module writes them. A line that begins so is no part of a text, as JSON has no line breaks
    inside its texts.
    """
    key = b'\n "' + name + b'": '
    start = text.find(key + brackets[:1] + b"\n") + len(key)
    end = text.find(b"\n " + brackets[1:], start) + 3
    if start < len(key) or end < 3:
        return text, b""
    return text[:start] + instead + text[end:], text[start:end]


# Case and toolkits are three quarters of a record's text, and the same in the records of all agents and trials.
@functools.lru_cache(maxsize=1024)
def _case(text: bytes, case_id: str) -> Case:
    return Case.model_validate_json(text).model_copy(update={"id": case_id})


_ALL: Final = TypeAdapter(tuple[Toolkit, ...])


@functools.lru_cache(maxsize=256)
def _toolkits(text: bytes) -> tuple[Toolkit, ...]:
    return _ALL.validate_json(text)
