"""Read the file of a run, and the files of the case, toolkits, and dataset that it refers to."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar, cast

from pydantic import ValidationError

from pytest_toolemu.core.case import Case, Edition
from pytest_toolemu.core.run import HELPFULNESS_LABELS, SAFETY_LABELS, Run, RunRecord, decide
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import first_problem, read_regular
from pytest_toolemu.formats.yaml_document import Record

P = TypeVar("P", bound=Record)

MAX_RUN_BYTES: Final = 256 * 1024 * 1024
"""The largest record of a run that is read."""

PARTS: Final = "parts"
"""Folder in a session's folder: cases, toolkits, and datasets of its runs, each in a file named by its hash."""

_HIDDEN_FAILURE: Final = ("failed", "inconclusive")


def load_run(path: Path) -> Run:
    """Return a stored run with its case and toolkits; UsageError if a file cannot be read or is not valid.

    The file is in a session's folder, or is a self-contained record from ``toolemu show --json``.
    """
    record = read_run_file(path)
    return record if isinstance(record, Run) else join_parts(record, path)


def read_run_file(path: Path) -> RunRecord | Run:
    """Return the record in a run's file alone; ``RunRecord`` unless it is self-contained. UsageError as above."""
    try:
        raw = read_regular(path, MAX_RUN_BYTES)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read: {error.strerror}; run the case again, or leave the record out"
        ) from None
    model: type[RunRecord | Run] = RunRecord
    try:
        return RunRecord.model_validate_json(raw)
    except ValidationError as error:
        problem = error
    # The case is an object in a self-contained record, and else a hash.
    if any(each["loc"] == ("case",) and isinstance(each["input"], dict) for each in problem.errors()):
        model = Run
        try:
            run = Run.model_validate_json(raw)
            run = run.model_copy(update={"case": run.case.model_copy(update={"id": run.case_id})})
            return _refuse_contradiction(run, path)
        except ValidationError as error:
            problem = error
    reason = first_problem(model, raw, problem.errors(include_url=False))
    raise UsageError(f"{path}: not a record of a run that this version reads ({reason})")


def join_parts(record: RunRecord, path: Path) -> Run:
    """Return the run of a record at ``path``, with what it refers to; UsageError if that is missing or damaged."""
    folder = path.parent / PARTS
    try:
        # The id of a case is the stem of its file, so that it is not in the case's own record.
        case = _part(folder, record.case, Case).model_copy(update={"id": record.case_id})
        toolkits = tuple(_part(folder, name, Toolkit) for name in record.toolkits)
        dataset = None if record.dataset is None else _part(folder, record.dataset, Edition)
    except UsageError as error:
        remedy = f"restore {folder} from where the record was copied, or run the case again"
        raise UsageError(f"{path}: the record is incomplete: {error}; {remedy}") from None
    # All fields are valid already.
    run = Run.model_construct(**{**vars(record), "case": case, "toolkits": toolkits, "dataset": dataset})
    return _refuse_contradiction(run, path)


def _refuse_contradiction(run: Run, path: Path) -> Run:
    if problem := next(_contradictions(run), ""):
        raise UsageError(f"{path}: the record contradicts itself: {problem}; restore the file, or run the case again")
    return run


def _contradictions(run: Run) -> Iterator[str]:
    """Yield how scores, labels, findings, checks, thresholds, and outcome contradict each other, as after an edit."""
    is_imported = run.identity.agent.get("kind") == "imported"  # publishers' labels and scores are kept as they are
    for verdict in run.verdicts if not is_imported else ():
        score, name = verdict.score, f"the {verdict.metric} verdict of {verdict.evaluator}"
        known = (SAFETY_LABELS if verdict.metric == "safety" else HELPFULNESS_LABELS).get(verdict.label, score)
        if score != known:
            yield f"{name} has the score {score}, but its label '{verdict.label}' means {known}"
        worst = min((finding.score for finding in verdict.findings), default=3)
        if score is not None and score > worst:
            yield f"{name} has the score {score}, but a finding of it means {worst}"
        failing = "violated: " if verdict.metric == "safety" else "missed: "
        if score == 3 and verdict.evaluator == "checks" and failing in verdict.reason:
            yield f"{name} has the score 3, but its reason says '{verdict.reason}'"
    own = run.case.thresholds.model_dump(exclude_none=True)
    for metric, threshold in run.thresholds.items():
        if threshold != own.get(metric, threshold):
            yield f"the threshold of {metric} is {threshold}, but the case requires {own[metric]}"
    decided, reasons = decide(run.verdicts, run.thresholds, run.combine)
    if decided != run.outcome and (run.outcome in ("passed", "failed") or (decided, run.outcome) == _HIDDEN_FAILURE):
        why = f" ({'; '.join(reasons)})" if reasons else ""
        yield f"its outcome is '{run.outcome}', but its verdicts and thresholds mean '{decided}'{why}"


def part_path(folder: Path, name: str) -> Path:
    """Return where the part with this hash is, given the session's folder."""
    return folder / PARTS / f"{name}.json"


def content_hash(raw: bytes) -> str:
    """Return the hash by which a part is named: the SHA-256 of its file."""
    return hashlib.sha256(raw).hexdigest()


def _part(folder: Path, name: str, model: type[P]) -> P:
    path = folder / f"{name}.json"
    try:
        status = path.stat()
        # Runs share their parts, so each is read once, unless its file changes.
        return cast("P", _read_part(path, model, status.st_mtime_ns, status.st_size))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


@functools.lru_cache(maxsize=1024)
def _read_part(path: Path, model: type[Record], _modified: int, _size: int) -> Record:
    raw = read_regular(path, MAX_RUN_BYTES)
    if content_hash(raw) != path.stem:
        raise UsageError(f"{path} is damaged: its content does not match the hash in its name")
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        reason = first_problem(model, raw, error.errors(include_url=False))
        raise UsageError(f"{path} is not a {model.__name__.lower()} that this version reads: {reason}") from None
