"""Reads files of recorded runs: one JSON object per line, optionally compressed, described by the file's name."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.toolbox import printable
from pytest_toolemu.errors import UsageError

_SHOWN: Final = 20


@dataclass(frozen=True)
class JsonLine:
    """A record with its line number, counted from 1."""

    path: Path
    number: int
    record: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.path}:{self.number}"

    @property
    def place(self) -> str:
        """The file name and the line number, without the folder."""
        return f"{self.path.name}:{self.number}"


def read_lines(path: Path) -> list[JsonLine]:
    """Return all records of a ``.jsonl`` or ``.jsonl.gz`` file. Raise UsageError with every line that is not valid.

    No line is skipped, as evaluations identify a trajectory by its line number.
    """
    lines, problems = [], []
    for number, text in enumerate(_texts(path), 1):
        try:
            record = _value(text.decode("utf-8-sig"))
            if not isinstance(record, dict):
                raise ValueError("not a JSON object")
            lines.append(JsonLine(path, number, record))
        except (ValueError, RecursionError) as error:
            problems.append(f"{path}:{number}: {str(error) or 'nested too deeply'}; fix or remove the line")
    raise_if_any(problems)
    if not lines:
        raise UsageError(f"{path}: the file is empty; name a file with content")
    return lines


def _value(text: str) -> Any:
    """Return a JSON value in which lone surrogates, which UTF-8 cannot encode, are replaced."""
    value = json.loads(text)
    surrogate = re.search(r"\\u[dD][89a-fA-F]", text)
    return json.loads(printable(json.dumps(value, ensure_ascii=False))) if surrogate else value


def raise_if_any(problems: list[str]) -> None:
    """Raise UsageError with one line per problem, if there are any."""
    if problems:
        more = [f"… and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise UsageError("\n".join(problems[:_SHOWN] + more))


def _texts(path: Path) -> Iterator[bytes]:
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}; name a file that you can read") from None
    except (EOFError, zlib.error) as error:
        raise UsageError(f"{path}: not a complete gzip file: {error}; copy or download it again") from None
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
    """The parts of a file name: ``AGENT_emu-EMULATOR_eval-EVALUATOR_int4_r0-15_DDMM_HHMMSS_eval_agent_safe.jsonl``.

    All parts except the agent are optional.
    """

    agent: str
    emulator: str
    evaluator: str
    metric: Metric | None

    @classmethod
    def of(cls, path: Path) -> RunFileName:
        """Return the parts of a name.

        If it has another form, its stem is the name of both the agent and the evaluator.
        """
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
    """Return the trajectory in a record, which may contain its evaluations as well."""
    inner = record.get("trajectory")
    return inner if isinstance(inner, dict) else record


def stated_by_name(path: Path) -> dict[str, str]:
    """Return the parts of a file name that are certain, by name; nothing if it has neither an emulator nor a time."""
    parts = _NAME.fullmatch(path.name.removesuffix(".gz").removesuffix(".jsonl"))
    if parts is None or not (parts["emulator"] or parts["time"]):
        return {}
    names = ("agent", "emulator", "evaluator", "quantization", "range", "time")
    return {name: parts[name] for name in names if parts[name]}


def recording_name(path: Path) -> str:
    """Return the name of the recording in a file: the file's name without the evaluator and its time.

    Forks publish a copy of the trajectories for each evaluator, and its time may be that of the evaluation.
    """
    parts = stated_by_name(path)
    if parts.pop("evaluator", None):
        parts.pop("time", None)
    return " ".join(parts.values()) or path.name.removesuffix(".gz").removesuffix(".jsonl")


def quantized(agent: str, quantization: str | None) -> str:
    """Return the name of an agent with its quantization: a quantized model is a different agent."""
    return agent if quantization in (None, "none") else f"{agent} {quantization}"
