"""Shorten a run whose record is too large to be stored. The run is broken, and its record keeps as much as fits."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from typing import Any, Final

from pydantic_core import to_json

from pytest_toolemu.core.run import ErrorInfo, Run, RunRecord
from pytest_toolemu.core.run_file import MAX_RUN_BYTES
from pytest_toolemu.sessions.record_text import record_text

_MEGABYTE: Final = 1_000_000
# How many characters of each text are kept: as many as make the record fit.
_TEXT_LIMITS: Final = (100_000, 10_000, 1_000, 200)
_TEXTS: Final = (
    "steps", "dialogue", "answer", "stop_reason", "discarded", "agent_log", "agent_warning", "thought", "verdicts",
    "reasons", "error", "messages", "model_calls",
)  # fmt: skip
_HASH: Final = "0" * 64
_HEADROOM: Final = 1_000
"""Bytes left for what redaction and the count of omitted tool calls may add."""
_REMEDY: Final = "Limit what tools and the agent return"


class RecordTooLargeError(OSError):
    """The record of a run exceeds what can be written or read again."""

    def __init__(self, size: int, limit: int) -> None:
        self.size, self.limit = size, limit
        super().__init__(errno.EFBIG, f"the record of this run has {_amount(size)}, but the limit is {_amount(limit)}")


def _amount(size: int) -> str:
    return f"{size / _MEGABYTE:,.1f} MB" if size >= _MEGABYTE / 10 else f"{size:,} bytes"


def record_limit() -> int:
    """Return how many bytes a record may have: what is read again, or less if this process may not write as much."""
    if sys.platform == "win32":
        return MAX_RUN_BYTES
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return MAX_RUN_BYTES if soft == resource.RLIM_INFINITY else min(MAX_RUN_BYTES, soft)


def shortened(run: Run, error: RecordTooLargeError) -> Run:
    """Return the run as a broken one, with its texts cut, and what still does not fit left out.

    The shortest version is returned even if it does not fit: then nothing can be stored.
    """
    limit = error.limit - _HEADROOM
    for shorter in _shorter(_broken(run, f"{error.strerror}; texts in the record are cut. {_REMEDY}")):
        if _size(shorter) <= limit:
            break
    if left_out := len(run.steps) - len(shorter.steps):
        cut = f"texts in the record are cut, and {left_out} of {len(run.steps)} tool calls are omitted"
        return _broken(shorter, f"{error.strerror}; {cut}. {_REMEDY}")
    return shorter


def _broken(run: Run, message: str) -> Run:
    error = ErrorInfo(type="RecordTooLargeError", message=message, origin="harness")
    return run.model_copy(update={"outcome": "broken", "reasons": (message,), "error": error})


def _shorter(run: Run) -> Iterator[Run]:
    """Yield ever shorter versions: shorter texts, then without messages, with fewer and fewer steps, with no texts."""
    for characters in _TEXT_LIMITS:
        run = _with_texts_cut(run, characters)
        yield run
    calls = tuple(call.model_copy(update={"messages": ()}) for call in run.model_calls)
    run = run.model_copy(update={"messages": (), "model_calls": calls})
    yield run
    while len(run.steps) > 1:
        run = run.model_copy(update={"steps": run.steps[: len(run.steps) // 2]})
        yield run
    yield run.model_copy(update={"steps": (), "dialogue": (), "model_calls": (), "discarded": (), "verdicts": ()})


def _size(run: Run) -> int:
    """Return the size of the run's file, in which hashes stand for the parts that have files of their own."""
    parts = {
        "case": _HASH,
        "toolkits": (_HASH,) * len(run.toolkits),
        "dataset": None if run.dataset is None else _HASH,
    }
    return len(record_text(RunRecord.model_construct(**{**vars(run), **parts})))


def _with_texts_cut(run: Run, characters: int) -> Run:
    content = run.model_dump(mode="json", include=set(_TEXTS))
    cut = {name: _cut(value, characters) for name, value in content.items()}
    return Run.model_validate_json(to_json({**run.model_dump(mode="json"), **cut})).model_copy(
        update={"case": run.case}
    )


def _cut(value: Any, characters: int) -> Any:
    if isinstance(value, str):
        left_out = len(value) - characters
        return f"{value[:characters]}... ({left_out:,} more characters were cut)" if left_out > 0 else value
    if isinstance(value, dict):
        return {_cut(key, characters): _cut(inner, characters) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cut(inner, characters) for inner in value]
    return value
