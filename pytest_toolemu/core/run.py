"""The record of one run of a case: what reports, gates, and resumed sessions read."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_rules import Check
from pytest_toolemu.core.case_vocabulary import Metric, Score
from pytest_toolemu.core.dataset import Edition
from pytest_toolemu.core.messages import Message, ModelCall, Role, Usage
from pytest_toolemu.core.references import Trap
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.trajectory import Step, TurnEnding, Utterance, json_text
from pytest_toolemu.core.verdict import Outcome, Verdict, worst_score
from pytest_toolemu.formats.identifiers import CaseId, ContentHash, PathText, RunKey
from pytest_toolemu.formats.json_schema import once_per_object
from pytest_toolemu.formats.yaml_document import Record

RECORD_VERSION: Final = 1
"""Version of the format in which runs are written and read."""

RunSource = Literal["live", "replayed", "partly replayed", "resumed"]
"""Where a run comes from: models (*live*), cassettes alone or in part, or an earlier session (*resumed*)."""


Origin = Literal["agent", "provider", "harness"]
"""Where the exception came from that broke a run: the agent's code, a model provider, or the evaluation harness."""


class ErrorInfo(Record):
    """The exception that broke a run."""

    type: str = Field(description="Class of the exception")
    message: str = Field(description="Text of the exception")
    traceback: str = Field(default="", description="Traceback without the frames of this package")
    origin: Origin | None = Field(default=None, description="Where the exception came from")
    status: int | None = Field(default=None, description="HTTP status of the provider's response")


class Identity(Record):
    """What the agent, the emulator, and the evaluators of a run consist of."""

    agent: dict[str, Any] = Field(description="What the agent consists of: kind, model, parameters, hashes of prompts")
    emulator: dict[str, Any] = Field(description="What the emulator consists of")
    evaluators: tuple[dict[str, Any], ...] = Field(description="What each evaluator consists of")
    user: dict[str, Any] | None = Field(default=None, description="What the user consists of; null with one turn")


class CassetteUse(Record):
    """How one run used its cassette."""

    file: str = Field(description="File of the cassette")
    played: int = Field(default=0, description="Number of model calls that were replayed")
    added: int = Field(default=0, description="Number of model calls that were recorded")
    unused: tuple[int, ...] = Field(default=(), description="Recorded calls not requested, though similar ones were")
    stale: tuple[int, ...] = Field(default=(), description="Recorded calls that the run no longer makes")


class Rechecked(Record):
    """The case file whose checks and thresholds replaced those of a stored run."""

    file: str = Field(description="The case file")
    hash: str = Field(description="SHA-256 of the case in the file, computed as in the run's `hashes`")
    differ: bool = Field(description="Whether the checks in the file differ from those at the time of the run")
    at_run: tuple[Check, ...] = Field(description="The checks at the time of the run")


class RunFields(Record):
    """Everything in the record of a run except its case, toolkits, and dataset."""

    version: int = Field(default=RECORD_VERSION, description="Version of the record format")
    key: RunKey = Field(description="SHA-256 of everything that can change the result; equal for a repetition")
    agent: str = Field(default="", description="Name of the agent in reports; `identity` says what it consists of")
    case_id: CaseId = Field(description="ID of the case")
    case_path: PathText = Field(description="Case file, relative to the folder in which the session ran")
    hashes: dict[str, str] = Field(description="SHA-256 of the case, of each toolkit by name, and of the conversation")
    identity: Identity = Field(description="What the agent, the emulator, and the evaluators consist of")
    trial: int = Field(default=1, description="Number of the repetition, from 1")
    seed: int = Field(default=0, description="Seed that is sent with every request whose endpoint accepts one")
    limits: dict[str, int | None] = Field(default={}, description="Limits: `max_steps`, `max_tokens`, and `turns`")
    source: RunSource = Field(default="live", description="Where the run comes from")
    resumed_from: str | None = Field(default=None, description="Session that made the run, if it is another one")
    rejudged_from: str | None = Field(default=None, description="Record that this run was judged again from")
    recording: CassetteUse | None = Field(default=None, description="How the run used its cassette; null without one")
    rechecked: Rechecked | None = Field(default=None, description="Set if the checks are those of a newer file")
    trap: Trap | None = Field(default=None, description="How a world built for the case tempts the agent")
    steps: tuple[Step, ...] = Field(default=(), description="The tool calls with their observations, in order")
    dialogue: tuple[Utterance, ...] = Field(default=(), description="What agent and user said, without the answer")
    answer: str = Field(default="", description="Final answer of the agent; empty if it did not finish")
    stop: TurnEnding = Field(default="final", description="Why the agent's turn ended")
    stop_reason: str = Field(default="", description="Details of `stop`, for example the error or the limit")
    discarded: tuple[str, ...] = Field(default=(), description="Text of the agent that was cut off")
    agent_log: str = Field(default="", description="End of what the agent's program wrote to stderr")
    agent_warning: str = Field(default="", description="What may explain the result and is not part of the trajectory")
    thought: str = Field(default="", description="Last thought of the agent, if `model_calls` lacks it")
    verdicts: tuple[Verdict, ...] = Field(default=(), description="Verdicts of all evaluators")
    thresholds: dict[Metric, Score] = Field(default={}, description="Lowest passing score of each required metric")
    outcome: Outcome = Field(description="Result of the run")
    reasons: tuple[str, ...] = Field(default=(), description="Why the run did not pass; empty if it passed")
    error: ErrorInfo | None = Field(default=None, description="Exception that broke the run; null unless it is broken")
    messages: tuple[Message, ...] = Field(default=(), description="Every message once; `model_calls` refers to them")
    model_calls: tuple[ModelCall, ...] = Field(default=(), description="Every request to a model, with its reply")
    usage: dict[Role, Usage] = Field(default={}, description="Tokens and requests of each role")
    started: float = Field(default=0.0, description="Start, in seconds since the epoch")
    seconds: float = Field(default=0.0, description="Duration in seconds")
    versions: dict[str, str] = Field(default={}, description="Versions of Python and of libraries")

    @field_validator("version")
    @classmethod
    def _readable(cls, version: int) -> int:
        if version != RECORD_VERSION:
            raise ValueError(
                f"the record has format version {version}, but this version of pytest-toolemu reads only version "
                f"{RECORD_VERSION}; run the case again, or use the version of pytest-toolemu that wrote the record"
            )
        return version

    def score(self, metric: Metric) -> int | None:
        """Return the lowest score of a metric; None if no evaluator gave one."""
        return worst_score(self.verdicts, metric)

    @property
    def turns(self) -> int:
        """The number of messages that the agent could write to the user."""
        return self.limits.get("turns") or 1

    @property
    def cut_off(self) -> bool:
        """Whether time ran out before the agent or the evaluators had finished."""
        unjudged = self.outcome == "inconclusive" and not self.verdicts and self.stop != "error"
        return self.stop == "timeout" or unjudged


class Run(RunFields):
    """The whole record of one run. Written to a file, it is self-contained."""

    case: Case = Field(description="The case, without its ID")
    toolkits: tuple[Toolkit, ...] = Field(description="The case's toolkits, the primary one first")
    dataset: Edition | None = Field(default=None, description="Dataset that the case belongs to; null if there is none")


class RunRecord(RunFields):
    """A run in a session's folder. Case, toolkits, and dataset are files of their own, which runs share.

    Each is named by the SHA-256 of its content: `parts/<hash>.json` in the session's folder.
    """

    case: ContentHash = Field(description="Hash of the case's file")
    toolkits: tuple[ContentHash, ...] = Field(description="Hashes of the toolkits' files, the primary one first")
    dataset: ContentHash | None = Field(default=None, description="Hash of the file that names the dataset")

    @property
    def parts(self) -> tuple[str, ...]:
        """The hashes of all files that the run refers to."""
        return (self.case, *self.toolkits, *([self.dataset] if self.dataset else []))


def source_of(calls: Iterable[ModelCall]) -> RunSource:
    """Return whether all, some, or none of these replies come from a cassette."""
    kinds = {bool(call.replayed) for call in calls if call.reply is not None}
    return "live" if True not in kinds else "replayed" if kinds == {True} else "partly replayed"


def sha256(value: Any) -> str:
    """Return the SHA-256 of a JSON value in canonical form, as hexadecimal text."""
    return hashlib.sha256(json_text(value).encode()).hexdigest()


def content_of(part: Case | Toolkit) -> dict[str, Any]:
    """Return what the hash of a case or toolkit covers: all but what changes no result, such as split and proof."""
    without = {"split", "canary", "proof", "asking", "clues", "conversation", "provenance", "variant_of"}
    content = part.model_dump(mode="json", exclude=without)
    for reference in content.get("references", {}).values():
        for name in ("violated", "missed", "checks_give"):
            del reference[name]
    return content


def hashes_of(case: Case, toolkits: Iterable[Toolkit]) -> dict[str, str]:
    """Return the SHA-256 of the case, under ``case``, and of each toolkit, under its name."""
    return {"case": _content_hash(case)} | {kit.name: _content_hash(kit) for kit in toolkits}


@once_per_object(4096)
def _content_hash(part: Case | Toolkit) -> str:
    return sha256(content_of(part))


def run_key(
    case_id: str,
    hashes: Mapping[str, str],
    identity: Identity,
    trial: int,
    seed: int,
    limits: Mapping[str, int | None] | None = None,
) -> str:
    """Return a hash of everything that can change the result of a run. It is known before the run starts.

    ``hashes`` are those of ``hashes_of``.
    """
    content = {
        "case": case_id,
        "hashes": dict(hashes),
        "identity": identity.model_dump(mode="json"),
        "trial": trial,
        "seed": seed,
        "limits": dict(limits or {}),
    }
    return sha256(content)


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of this package, of Python, and of each imported library that can change a result."""
    import platform
    from importlib import metadata

    installed = {"python": platform.python_version()}
    for name, module in (("pytest-toolemu", "pytest_toolemu"), ("openai", "openai"), ("anthropic", "anthropic")):
        with contextlib.suppress(metadata.PackageNotFoundError):
            if module in sys.modules:
                installed[name] = metadata.version(name)
    return installed
