"""The manifests in a session's folder: of the session, and of a shard."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, field_validator, model_validator

from pytest_toolemu.analysis.run_summary import Slices
from pytest_toolemu.core.case import Edition
from pytest_toolemu.core.messages import Message, ModelCall, Role
from pytest_toolemu.core.run_notes import RunNote, notes_of
from pytest_toolemu.formats.identifiers import CaseId, FolderName, PathText, path_text
from pytest_toolemu.formats.text import counted
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.models.pricing import Cost, PriceList
from pytest_toolemu.settings.option import MAX_SHARDS, is_gate_file
from pytest_toolemu.settings.option_table import OPTIONS, SettingValue

if TYPE_CHECKING:
    from pytest_toolemu.emulators.world_builder import WorldBuild

Number = Annotated[float, Field(strict=False, ge=0, le=1e15)]
Count = Annotated[int, Field(ge=0, le=10**15)]

_MANY: Final = frozenset(option.name for option in OPTIONS if option.many)
_PATHS: Final = frozenset({"prices", "calibration", "gate"})
_SHARD: Final = re.compile(r"[1-9]\d{0,5}/[1-9]\d{0,5}")


class ServerRecord(Record):
    """A vLLM server that the session started."""

    model: str = Field(description="Model that the server serves")
    command: tuple[str, ...] = Field(default=(), description="Command that started the server")
    version: str | None = Field(default=None, description="Version of vLLM; null if the server never answered")
    log: str = Field(default="", description="Log file of the server")


class WorldCounts(Record):
    """How many worlds a session built before its first case."""

    builder: str = Field(description="Name of the model that built the worlds")
    built: Count = Field(description="Number of worlds that were built")
    corrected: Count = Field(default=0, description="Number of built worlds that the model had to correct")
    failed: Count = Field(default=0, description="Number of worlds that were not built")
    by_fallback: Count = Field(default=0, description="Number of built worlds for which a fallback model was asked")


class PlannedItem(Record):
    """A test item of a planned case."""

    agent: str = Field(default="", description="Name of the agent, if it was known at collection")
    outcome: Literal["", "not run", "broken", "inconclusive", "unjudged", "passed", "failed"] = Field(
        default="", description="Outcome of an item without a record"
    )
    reason: str = Field(default="", description="Why the item left no record")


class PlannedCase(Record):
    """A case that the session was to run, with the slices that it belongs to."""

    slices: Slices = Field(default={}, description="The values that the case states for each dimension of slices")
    variant_of: str = Field(default="", description="The case of which this one is a variant; empty if it is none")
    items: dict[str, PlannedItem] = Field(description="Test items of the case, by node ID")

    def with_items(self, items: dict[str, PlannedItem]) -> PlannedCase:
        """Return the case with these items."""
        return self.model_copy(update={"items": items})


class Manifest(Record):
    """The session as a whole: what reports, gates, merges, and a resumed session need to know of it."""

    session: FolderName = Field(default="", description="Name of the session, which is the name of its folder")
    settings: dict[str, tuple[SettingValue, str]] = Field(
        default={}, description="Value of each setting, and its source"
    )
    arguments: tuple[str, ...] = Field(default=(), description="Command line arguments of pytest")
    rootdir: PathText = Field(default=".", description="Folder that paths in settings are relative to")
    versions: dict[str, str] = Field(default={}, description="Versions of Python and of the libraries in use")
    datasets: tuple[Edition, ...] = Field(default=(), description="Datasets that the cases belong to")
    resumed_from: tuple[PathText, ...] = Field(
        default=(), description="Sessions whose runs this session may have reused"
    )
    evaluators: tuple[str, ...] = Field(default=(), description="Evaluators that the session used")
    judged_by: tuple[str, ...] = Field(default=(), description="Names of all evaluators that scored a run")
    models: str | None = Field(default=None, description="`live`, `replayed`, or both, as models answered")
    servers: tuple[ServerRecord, ...] = Field(default=(), description="vLLM servers that the session started")
    prices: tuple[PriceList, ...] = Field(default=(), description="Prices of the file that the session used")
    cost: dict[Role, Cost] = Field(default={}, description="Requests, tokens, and cost in USD by role")
    worlds: WorldCounts | None = Field(default=None, description="Worlds that the session built; null if it built none")
    stopped_early: str = Field(default="", description="Why the session stopped early; empty if it did not")
    early_decisions: tuple[str, ...] = Field(
        default=(), description="Decisions on the gates of a session that stopped early"
    )
    not_run: Count = Field(default=0, description="Number of cases that were not run")
    planned: dict[CaseId, PlannedCase] = Field(default={}, description="Cases that the session was to run, by ID")
    merged_from: tuple[PathText, ...] = Field(default=(), description="Sessions that were merged into this one")
    shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] | None = Field(
        default=None, description="Number of shards of a merged session; null if it was not sharded"
    )
    playground: bool = Field(default=False, description="Whether a person played the runs by hand")
    missing: Annotated[tuple[str, ...], Field(max_length=MAX_SHARDS)] = Field(
        default=(), description="Shards that the merge went without, a sentence for each"
    )
    judges: tuple[str, ...] = Field(default=(), description="Evaluators of `toolemu judge` that judged the runs again")
    cases: dict[str, dict[str, str]] = Field(
        default={}, description="Case files of `toolemu judge --cases`, with hashes"
    )
    judged_from: tuple[str, ...] = Field(default=(), description="Sessions whose runs `toolemu judge` judged again")
    imported_from: tuple[str, ...] = Field(default=(), description="Files that `toolemu import` read the runs from")

    @property
    def is_empty(self) -> bool:
        """Whether it contains nothing, as if the session had none."""
        return not self.model_fields_set

    @property
    def is_plan_complete(self) -> bool:
        """Whether a planned run without a record was lost.

        A merge without some shards accepts that their runs are missing. ``toolemu judge`` plans only the others.
        """
        return not self.missing or bool(self.judges)

    def setting(self, name: str) -> SettingValue:
        """Return the value of a setting; None if the session did not have this setting."""
        value, _ = self.settings.get(name, (None, ""))
        return value

    def text_setting(self, name: str) -> str:
        """Return the value of a setting that is text; empty if it was not set."""
        value = self.setting(name)
        return value if isinstance(value, str) else ""

    def list_setting(self, name: str) -> tuple[str, ...]:
        """Return the values of a repeatable setting; empty if it was not set."""
        value = self.setting(name)
        return value if isinstance(value, tuple) else ()

    @field_validator("settings")
    @classmethod
    def _kinds(cls, settings: dict[str, tuple[SettingValue, str]]) -> dict[str, tuple[SettingValue, str]]:
        for name, (value, _) in settings.items():
            if isinstance(value, tuple) != (name in _MANY):
                raise ValueError(f"the setting {name!r} is {'a list of text' if name in _MANY else 'a single value'}")
            for text in value if isinstance(value, tuple) else (value,):
                # A gate may also be an expression, which may be longer than the name of a file.
                if name in _PATHS and text is not None and (name != "gate" or is_gate_file(str(text))):
                    path_text(str(text))
            if name == "shard" and value is not None and not _SHARD.fullmatch(str(value)):
                raise ValueError(f"the setting 'shard' is INDEX/COUNT, not {value!r}")
        return settings


class ShardManifest(Record):
    """What one shard of a session was to run. ``toolemu merge`` finds out from it what is missing."""

    shard: Annotated[int, Field(ge=1)] = Field(description="Number of the shard, from 1")
    count: Annotated[int, Field(ge=1, le=MAX_SHARDS)] = Field(description="Number of shards")
    items: Count = Field(description="Number of test items in this shard")
    runs: tuple[str, ...] = Field(description="Case and hash of the item of each record")
    collected: Count = Field(description="Number of test items in all shards")
    collection: str = Field(description="Hash of all collected items; equal in all shards of a session")
    durations: str = Field(description="Hash of the durations that assigned cases to shards; empty without any")

    @model_validator(mode="after")
    def _has_a_valid_number(self) -> ShardManifest:
        if self.shard > self.count:
            raise ValueError(f"shard {self.shard} does not exist, as there are {self.count}")
        return self


# Settings that change runs or select other cases. They choose the session to resume; run keys decide on each run.
SAME: Final = (
    "agent", "prompt", "protocol", "emulator", "emulator-mode", "world", "worlds", "evaluator", "checks", "helpfulness",
    "judge-later", "turns", "user", "max-steps", "max-tokens", "seed", "temperature", "max-output-tokens", "vllm-args",
    "vllm-lora", "record", "replay", "shard",
)  # fmt: skip


def run_settings(settings: Mapping[str, tuple[SettingValue, str]]) -> list[SettingValue]:
    """Return the values of the settings that change runs; a setting that a session did not have is None."""
    return [settings.get(name, (None, ""))[0] for name in SAME]


WORLD_BUILDS: Final = "worlds.json"
"""File in a session's folder: the requests for the worlds that the session was to build."""


class StoredWorldBuild(Record):
    """The attempt to build one world."""

    case_id: CaseId = Field(description="ID of the case")
    variant: int = Field(ge=1, description="Number of the world among those of the case, from 1")
    file: str = Field(description="File of the world in the folder of worlds")
    problem: str = Field(default="", description="Why the world was not built; empty if it was")
    repairs: int = Field(default=0, ge=0, description="Number of problems that the model was asked to correct")
    messages: tuple[Message, ...] = Field(default=(), description="Every message once; `model_calls` refers to them")
    model_calls: tuple[ModelCall, ...] = Field(default=(), description="Every request to the model, with its reply")

    @classmethod
    def of(cls, build: WorldBuild) -> StoredWorldBuild:
        """Return the record of an attempt."""
        return cls(
            case_id=build.planned.resolved_case.case.id,
            variant=build.planned.variant,
            file=build.planned.path.name,
            problem=build.problem,
            repairs=len(build.world.repairs) if build.world else 0,
            messages=tuple(build.ledger.messages),
            model_calls=tuple(build.ledger.model_calls),
        )


class WorldBuilds(Record):
    """All worlds that a session was to build."""

    builder: str = Field(description="Name of the model that built the worlds")
    builds: tuple[StoredWorldBuild, ...] = Field(description="The attempts, in the order in which they ended")

    @property
    def problems(self) -> dict[str, str]:
        """Why worlds were not built, by the name of their files."""
        return {build.file: build.problem for build in self.builds if build.problem}

    @property
    def paid_for(self) -> list[ModelCall]:
        """The model calls that the session paid for."""
        return [call for build in self.builds for call in build.model_calls if not call.replayed]

    @property
    def case_notes(self) -> list[tuple[str, tuple[RunNote, ...]]]:
        """What models did otherwise than configured, with the case of each world."""
        return [(build.case_id, notes_of(build.model_calls)) for build in self.builds]

    @property
    def counts(self) -> WorldCounts:
        """How many worlds were built."""
        built = [build for build in self.builds if not build.problem]
        return WorldCounts(
            builder=self.builder,
            built=len(built),
            corrected=sum(bool(build.repairs) for build in built),
            failed=len(self.builds) - len(built),
            by_fallback=sum(any(call.instead_of for call in build.model_calls) for build in built),
        )


def counts_text(counts: WorldCounts) -> str:
    """Return the counts in words."""
    failed = f", {counts.failed} not built" if counts.failed else ""
    fallback = f", {counts.by_fallback} by a fallback model" if counts.by_fallback else ""
    return (
        f"{counted(counts.built, 'world')} built by {counts.builder} ({counts.corrected} after corrections"
        f"{fallback}){failed}"
    )


def merged_worlds(counts: Sequence[WorldCounts]) -> WorldCounts | None:
    """Return the counts of all sessions together; None if no session built worlds."""
    if not counts:
        return None
    totals = {
        name: sum(getattr(one, name) for one in counts) for name in ("built", "corrected", "failed", "by_fallback")
    }
    return WorldCounts(builder=counts[0].builder, **totals)
