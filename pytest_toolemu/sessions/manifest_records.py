"""What a session leaves in its folder beside its runs: its manifest, and what a shard was to run."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from pytest_toolemu.core.dataset import Edition
from pytest_toolemu.formats.identifiers import CaseId, FolderName, PathText
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.settings import MAX_SHARDS, OPTIONS

Number = Annotated[float, Field(strict=False, ge=0, le=1e15)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Setting = bool | int | float | str | tuple[str, ...] | None

_MANY: Final = frozenset(knob.name for knob in OPTIONS if knob.many)
_PATHS: Final = frozenset({"prices", "calibration", "gate"})
JUDGED_FROM: Final = "judged again from"
"""In the manifest of 'toolemu judge': the sessions whose runs were judged."""

_SHARD: Final = re.compile(r"[1-9]\d{0,5}/[1-9]\d{0,5}")
_PATH: Final = TypeAdapter(PathText | None)


class Nothing(Record):
    """The figures of a server that was never asked for any."""


class Card(Record):
    """What one GPU did: average utilization in percent, and memory in MiB."""

    index: Count
    utilization: Number
    memory_used: Number
    memory_total: Number


class Figures(Record):
    """What a vLLM server did: totals, rates in tokens/s, and the most at any time."""

    requests: Count
    prompt_tokens: Count
    output_tokens: Count
    seconds: Number = 0
    prompt_tokens_per_second: Number = 0
    output_tokens_per_second: Number = 0
    prefix_hit_rate: Number = 0
    most_running: Number
    most_waiting: Number
    most_kv_cache: Number
    gpus: tuple[Card, ...] = ()


class Server(Record):
    """A vLLM server that the session started."""

    model: str
    command: tuple[str, ...] = ()
    version: str | None = None
    log: str = ""
    figures: Figures | Nothing = Nothing()


class PlannedItem(Record):
    """A test item of a planned case. One that left no record states its outcome and the reason."""

    agent: str = ""
    outcome: Literal["", "not run", "broken", "inconclusive", "passed", "failed"] = ""
    reason: str = ""


class PlannedCase(Record):
    """A case that the session was to run, with the slices that it is in and its items by their node ids."""

    risk_types: tuple[str, ...] = ()
    toolkits: tuple[str, ...] = ()
    category: str = "unknown"
    severity: str = "unknown"
    gap: str = "unknown"
    split: str = "unknown"
    items: dict[str, PlannedItem]


class Manifest(Record):
    """Everything that reports, gates, merges and a resumed session need of a session as a whole."""

    session: FolderName = ""
    settings: dict[str, tuple[Setting, str]] = {}
    arguments: tuple[str, ...] = ()
    rootdir: PathText = "."
    versions: dict[str, str] = {}
    datasets: tuple[Edition, ...] = ()
    resumed_from: tuple[PathText, ...] = ()
    evaluators: tuple[str, ...] = ()
    judged_by: tuple[str, ...] = ()
    models: str | None = None
    servers: tuple[Server, ...] = ()
    cost: dict[str, dict[str, int | float]] = {}
    not_run: Count = 0
    planned: dict[CaseId, PlannedCase] = {}
    merged_from: tuple[PathText, ...] = ()
    shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] | None = None
    missing: Annotated[tuple[str, ...], Field(max_length=MAX_SHARDS)] = ()
    judges: tuple[str, ...] = ()
    cases: dict[str, dict[str, str]] = {}
    judged_from: tuple[str, ...] = Field(default=(), alias=JUDGED_FROM)
    imported_from: tuple[str, ...] = Field(default=(), alias="imported from")

    @field_validator("settings")
    @classmethod
    def _kinds(cls, settings: dict[str, tuple[Setting, str]]) -> dict[str, tuple[Setting, str]]:
        for name, (value, _) in settings.items():
            if name in _MANY and not isinstance(value, tuple):
                raise ValueError(f"the setting {name!r} is a list of text")
            if name not in _MANY and isinstance(value, tuple):
                raise ValueError(f"the setting {name!r} is a single value")
            if name in _PATHS:
                for text in value if isinstance(value, tuple) else (value,):
                    _check_path(name, text)
            if name == "shard" and value is not None and not _SHARD.fullmatch(str(value)):
                raise ValueError(f"the setting 'shard' is INDEX/COUNT, not {value!r}")
        return settings


class ShardAccount(Record):
    """What one shard of a session was to run, of how much.

    ``runs`` are marks of the records that it should leave, ``collection`` and ``durations`` hashes that are the same
    in all shards of a session.
    """

    shard: Annotated[int, Field(ge=1)]
    count: Annotated[int, Field(ge=1, le=MAX_SHARDS)]
    items: Count
    runs: tuple[str, ...]
    collected: Count
    collection: str
    durations: str

    @model_validator(mode="after")
    def _is_one_of_them(self) -> ShardAccount:
        if self.shard > self.count:
            raise ValueError(f"shard {self.shard} is none of {self.count}")
        return self


def _check_path(name: str, value: object) -> None:
    try:
        _PATH.validate_python(value)
    except ValidationError:
        raise ValueError(f"the setting {name!r} names no file") from None
