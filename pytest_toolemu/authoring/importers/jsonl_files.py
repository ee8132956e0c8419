"""Files of recorded runs: one JSON object a line, perhaps compressed, with what was run in the file's name."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.core.case import Metric
from pytest_toolemu.core.toolbox import printable
from pytest_toolemu.errors import UsageError

_SHOWN: Final = 20


@dataclass(frozen=True)
class JsonLine:
    """One record; ``number`` counts from 1, as editors do."""

    path: Path
    number: int
    record: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.path}:{self.number}"

    @property
    def place(self) -> str:
        """The line in its file, without the folder."""
        return f"{self.path.name}:{self.number}"


def read_lines(path: Path) -> list[JsonLine]:
    """All records of a ``.jsonl`` or ``.jsonl.gz`` file; UsageError names every line that is none.

    No line is skipped: evaluations name a trajectory by its line.
    """
    found, problems = [], []
    for number, text in enumerate(_texts(path), 1):
        try:
            record = _value(text.decode("utf-8-sig"))
            if not isinstance(record, dict):
                raise ValueError("not a JSON object")
            found.append(JsonLine(path, number, record))
        except (ValueError, RecursionError) as error:
            problems.append(f"{path}:{number}: {str(error) or 'nested too deeply'}; mend or remove the line")
    complain(problems)
    if not found:
        raise UsageError(f"{path}: the file is empty")
    return found


def _value(text: str) -> Any:
    """A JSON value in which what UTF-8 cannot hold, an escaped half of a character, is replaced."""
    value = json.loads(text)
    halves = re.search(r"\\u[dD][89a-fA-F]", text)
    return json.loads(printable(json.dumps(value, ensure_ascii=False))) if halves else value


def complain(problems: list[str]) -> None:
    """UsageError with one line a problem, when there are any."""
    if problems:
        more = [f"… and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise UsageError("\n".join(problems[:_SHOWN] + more))


def _texts(path: Path) -> Iterator[bytes]:
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise UsageError(f"{path}: not a whole gzip file: {error}") from None
    return iter(content.rstrip().split(b"\n") if content.strip() else [])


_NAME: Final = re.compile(
    r"(?P<agent>.+?)(?:_emu-(?P<emulator>.+?))?(?:_eval-(?P<evaluator>.+?))?(?:_(?P<quantization>int4|int8|fp16))?"
    r"(?:_r(?P<range>\d+-\d+))?(?:_(?P<time>\d{4}_\d{6}))?(?:_eval_agent_(?P<kind>safe|help|help_ignore_safety)(?:_t[\d.]+)?)?"
)
_METRICS: Final[dict[str | None, Metric]] = {
    "safe": "safety",
    "help": "helpfulness",
    "help_ignore_safety": "helpfulness",
}


@dataclass(frozen=True)
class RunFileName:
    """What a file's name says: ``AGENT_emu-EMULATOR_eval-EVALUATOR_int4_r0-15_DDMM_HHMMSS_eval_agent_safe.jsonl``.

    All but the agent may be missing.
    """

    agent: str
    emulator: str
    evaluator: str
    metric: Metric | None

    @classmethod
    def of(cls, path: Path) -> RunFileName:
        """The parts of a name; the whole stem is the agent, or the evaluator, where the name has another form."""
        stem = path.name.removesuffix(".gz").removesuffix(".jsonl")
        parts = _NAME.fullmatch(stem)
        if parts is None:
            return cls(agent=stem, emulator="unknown", evaluator=stem, metric=None)
        ignoring = " ignoring safety" if parts["kind"] == "help_ignore_safety" else ""
        return cls(
            agent=quantized(parts["agent"], parts["quantization"]),
            emulator=parts["emulator"] or "unknown",
            evaluator=(parts["evaluator"] or stem) + ignoring,
            metric=_METRICS.get(parts["kind"]),
        )


def trajectory_in(record: dict[str, Any]) -> dict[str, Any]:
    """Return the trajectory that a record is, or holds together with its evaluations."""
    inner = record.get("trajectory")
    return inner if isinstance(inner, dict) else record


def stated_by_name(path: Path) -> dict[str, str]:
    """Return what a file's name states beyond doubt: parts by name; nothing when it has neither emulator nor time."""
    parts = _NAME.fullmatch(path.name.removesuffix(".gz").removesuffix(".jsonl"))
    if parts is None or not (parts["emulator"] or parts["time"]):
        return {}
    names = ("agent", "emulator", "evaluator", "quantization", "range", "time")
    return {name: parts[name] for name in names if parts[name]}


def recording_name(path: Path) -> str:
    """Return what names the recording in a file: the file's name without the evaluator.

    Forks publish a copy of the trajectories for each evaluator, whose time may be that of the evaluation.
    """
    parts = stated_by_name(path)
    if parts.pop("evaluator", None):
        parts.pop("time", None)
    return " ".join(parts.values()) or path.name.removesuffix(".gz").removesuffix(".jsonl")


def quantized(agent: str, quantization: str | None) -> str:
    """The name of an agent: the same model in other numbers is another agent."""
    return agent if quantization in (None, "none") else f"{agent} {quantization}"
