"""Writes drafts: plans them, asks the model for each, checks its text, and sends the findings back."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

from pydantic import ValidationError

from pytest_toolemu import prompts
from pytest_toolemu.authoring.drafts.check_draft import DraftCorpus, check_stored
from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftKind, DraftRecord, DraftStore, text_fingerprint
from pytest_toolemu.authoring.drafts.plans import PlannedNewCase, PlannedToolkit
from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.core.messages import Ledger, Message, Model, ReplySchema, Usage
from pytest_toolemu.core.run import sha256
from pytest_toolemu.errors import InconclusiveError, UsageError
from pytest_toolemu.formats.file_access import read_record, write_for_user
from pytest_toolemu.formats.identifiers import slug
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.yaml_document import Record, format_location
from pytest_toolemu.models.cassette_files import CassetteDirectory
from pytest_toolemu.models.cassette_recorder import recorder_of
from pytest_toolemu.models.structured_output import ask_structured

P = TypeVar("P")
D = TypeVar("D")
R = TypeVar("R", bound=Record)
Json = dict[str, Any]

_MAX_ID = 60


@dataclass
class Generation(ABC, Generic[P, D]):
    """Drafts of one kind: their plans, the folder of drafts, and how to read the files that they must not repeat.

    ``P`` is the plan of one draft, and ``D`` what is decided about it before the model writes it.
    """

    planned: Sequence[P]
    store: DraftStore
    read_corpus: Callable[[], DraftCorpus]
    prompts: ClassVar[tuple[str, ...]]

    @cached_property
    def existing(self) -> set[P]:
        """The plans of which a checked draft exists, whatever a person decided about it."""
        drafts = (draft for draft in self.store.drafts() if draft.record.status != "drafted")
        keys = {draft.record.asked.get("key") for draft in drafts}
        return {planned for planned in self.planned if self.key(planned) in keys}

    @property
    def missing(self) -> list[P]:
        """The plans without a draft."""
        return [planned for planned in self.planned if planned not in self.existing]

    @cached_property
    def corpus(self) -> DraftCorpus:
        """The files that drafts must not repeat."""
        return self.read_corpus()

    async def draft(self, author: Author, planned: P, decided: D) -> Draft:
        """Return the checked draft of a plan. Raise InconclusiveError if the model returns none."""
        stage = await self.stage(author, planned, decided)
        drafts: list[Draft] = []

        async def check(text: str) -> list[str]:
            """Write a text, check it, and return the findings for the model; none if there is no error among them."""
            fields = self.record_fields(planned, decided, text) | {
                "prompt_hash": sha256(prompt_hashes(*self.prompts)),
                "model": provider_and_name(author.model.identity),
                "created": datetime.now(UTC),
                "stages": (*stage.earlier, StageFiles.name(stage.name, stage.key)),
                "revisions": len(drafts),
            }
            if drafts:  # a correction keeps the name
                fields |= {"name": drafts[0].record.name, "created": drafts[0].record.created}
            fields["asked"] |= {"key": self.key(planned)}
            fields["fingerprint"] = text_fingerprint(text, fields["kind"])
            draft, report = await check_stored(self.store, self.store.put(text, DraftRecord(**fields)), self.corpus)
            drafts.append(draft)
            to_correct = [finding for finding in report.findings if finding.level != "note"] if report.errors else []
            lines = dict(enumerate(map(str.strip, text.splitlines()), 1))
            # The model sees no line numbers.
            in_lines = {f"line {number}": f"in the line {line!r}" for number, line in lines.items()}
            return [str(each.model_copy(update={"place": in_lines.get(each.place, each.place)})) for each in to_correct]

        await checked_text(author, self.subject(planned, decided), stage, check)
        return drafts[-1]

    @abstractmethod
    def key(self, planned: P) -> str:
        """Return the hash of everything that is asked for a plan, except what exists already."""

    @abstractmethod
    async def decide(self, author: Author) -> Mapping[P, D]:
        """Return what is decided about each missing draft before it is written."""

    @abstractmethod
    async def stage(self, author: Author, planned: P, decided: D) -> Stage[str]:
        """Return the request whose reply is read as the text of the draft."""

    @abstractmethod
    def record_fields(self, planned: P, decided: D, text: str) -> Json:
        """Return the fields of a draft's record that this kind of draft knows: kind, name, what was asked."""

    @abstractmethod
    def subject(self, planned: P, decided: D) -> str:
        """Return the name of a draft in messages."""

    @property
    def requests(self) -> int:
        """The number of requests for the missing drafts."""
        return len(self.missing)

    def free_id(self, kind: DraftKind, title: str, key: str) -> str:
        """Return an ID for a new case: its title as a plain name, with a part of the key if it is taken.

        A draft of the same key keeps its ID.
        """
        base = slug(title)[:_MAX_ID].strip("-") or "case"
        earlier = self.store.find(kind, base)
        is_free = earlier is None and not self.store.path_of(kind, base).exists()
        if is_free or (earlier is not None and earlier.record.asked.get("key") == key):
            return base
        return f"{base}-{key[:6]}"


class StagedGeneration(Generation[P, R]):
    """Drafts about which a first stage decides, several in one request, so that they differ."""

    first: ClassVar[str]
    batch: ClassVar[int]
    stages: ClassVar[int] = 1
    """Number of further requests for each draft."""

    decision: ClassVar[type[Record]]

    @abstractmethod
    def first_stage(self, planned: Sequence[P], earlier: Sequence[R]) -> Stage[dict[P, R]]:
        """Return the request for the decisions about several drafts; ``earlier`` are those about others."""

    async def decide(self, author: Author) -> dict[P, R]:
        """Return the decision about each missing draft; those of an earlier run are kept."""
        decided = self._stored(author.files)
        for batch in self._batches(decided):
            _, new = await author.ask(self.first_stage(batch, [*decided.values()]))
            for planned, decision in new.items():
                author.files.write(self.first, self.key(planned), decision.model_dump(), author.model.identity)
            decided |= new
        return decided

    @property
    def requests(self) -> int:
        """The number of requests for the missing drafts, and for the decisions that are missing."""
        batches = self._batches(self._stored(StageFiles(self.store.folder)))
        return len(batches) + self.stages * len(self.missing)

    def _stored(self, files: StageFiles) -> dict[P, Any]:
        stored = {planned: files.read_record(self.first, self.key(planned), self.decision) for planned in self.missing}
        return {planned: decision for planned, decision in stored.items() if decision is not None}

    def _batches(self, decided: Mapping[P, R]) -> list[list[P]]:
        """Return the plans without a decision, in groups that share a request."""
        left = [planned for planned in self.missing if planned not in decided]
        return [left[start : start + self.batch] for start in range(0, len(left), self.batch)]


N = TypeVar("N", PlannedToolkit, PlannedNewCase)


def texts_by_plan(
    planned: Sequence[N], replies: Sequence[Json], what: str, decision: type[Record]
) -> dict[N, dict[str, str]]:
    """Return the texts that a reply has for each plan. Raise ValueError if it has none or several for a plan."""
    by_number = {each["number"]: each for each in replies}
    numbers = [each.number for each in planned]
    if sorted(each["number"] for each in replies) != sorted(numbers):
        raise ValueError(f"write exactly one {what} for each of {', '.join(map(str, numbers))}")
    return {
        each: {name: " ".join(by_number[each.number][name].split()) for name in decision.model_fields}
        for each in planned
    }


T = TypeVar("T")

CORRECTIONS: Final = 2
"""How often a draft goes back to the model with the findings of its checks."""

_REMEDY: Final = "correct the file, or delete it to ask the model again"


@dataclass(frozen=True)
class Stage(Generic[T]):
    """One request of a draft, and how its reply is read.

    ``key`` is a hash of everything that the reply depends on. ``parse`` raises ValueError for problems that the schema
    cannot express. ``earlier`` are the files of the replies on which the request builds.
    """

    name: str
    key: str
    messages: tuple[Message, ...]
    schema: ReplySchema
    parse: Callable[[Json], T] = field(compare=False)
    earlier: tuple[str, ...] = ()


def stage_messages(prompt: str, rules: Json, request: Json) -> tuple[Message, ...]:
    """Return the messages of a prompt: its rules, and its request."""
    return (
        Message(role="system", content=prompts.render(f"authoring/{prompt}", **rules)),
        Message(role="user", content=prompts.render(f"authoring/{prompt}_request", **request)),
    )


def prompt_hashes(*names: str) -> list[str]:
    """Return the hashes of the rules and requests of prompts."""
    return [prompts.prompt_hash(f"authoring/{name}{part}") for name in names for part in ("", "_request")]


class StoredReply(Record):
    """The file of a reply, which people may edit."""

    stage: str
    key: str
    model: Json
    reply: Any


@dataclass(frozen=True)
class StageFiles:
    """The stored replies below a folder of drafts, so that an interrupted command continues where it stopped."""

    drafts: Path

    @staticmethod
    def name(stage: str, key: str) -> str:
        """Return the path of a stage's file below the folder of drafts."""
        return f"stages/{stage}-{key[:16]}.json"

    def read(self, stage: str, key: str) -> Any:
        """Return the stored reply; None if there is none. Raise UsageError if the file cannot be read."""
        path = self.drafts / self.name(stage, key)
        try:
            stored = read_record(path, StoredReply, expected="the reply of a stage", remedy=_REMEDY)
        except FileNotFoundError:
            return None
        if stored.key != key:
            raise UsageError(f"{path}: belongs to a different request; {_REMEDY}")
        return stored.reply

    def read_record(self, stage: str, key: str, model: type[R]) -> R | None:
        """Return a stored reply as a record, which people may have edited; None if there is none.

        Raise UsageError if the file cannot be read, or is not such a record.
        """
        value = self.read(stage, key)
        try:
            return None if value is None else model.model_validate(value)
        except ValidationError as error:
            problems = "; ".join(f"{format_location(each['loc'])}: {each['msg']}" for each in error.errors())
            raise UsageError(f"{self.drafts / self.name(stage, key)}: {problems}; {_REMEDY}") from None

    def write(self, stage: str, key: str, reply: Any, model: Json) -> None:
        """Store a reply with the identity of its model. Raise UsageError if the file cannot be written."""
        text = StoredReply(stage=stage, key=key, model=model, reply=reply).model_dump_json(indent=2) + "\n"
        write_for_user(self.drafts / self.name(stage, key), text, "choose another folder with --into")


@dataclass
class Author:
    """Asks the model, unless the reply of a stage is stored. ``usage`` sums the tokens of all requests."""

    model: Model
    files: StageFiles
    cassettes: CassetteDirectory | None = None
    usage: Usage = field(default_factory=Usage)
    problems: list[str] = field(default_factory=list)
    """Why corrections were given up, although there is a draft."""

    async def reply(self, stage: Stage[T]) -> tuple[Json, T]:
        """Return the stored reply, or a new one, which is then stored, and what is read from it.

        Raise UsageError if the stored reply is not valid, and as ``ask`` does.
        """
        stored = self.files.read(stage.name, stage.key)
        if stored is None:
            reply, result = await self.ask(stage)
            self.files.write(stage.name, stage.key, reply, self.model.identity)
            return reply, result
        problems = violations(stage.schema.schema_, stored)  # people may have edited it
        try:
            if not problems:
                return stored, stage.parse(stored)
        except ValueError as error:
            problems = str(error).splitlines()
        path = self.files.drafts / self.files.name(stage.name, stage.key)
        raise UsageError(f"{path}: {'; '.join(problems)}; {_REMEDY}")

    async def ask(self, stage: Stage[T]) -> tuple[Json, T]:
        """Return a new reply, and what is read from it; a reply that cannot be read is sent back at most twice.

        Raise InconclusiveError if no reply can be used.
        """
        ledger, item = Ledger(0), f"author::{stage.name}-{stage.key[:16]}"

        def parse(value: Json) -> tuple[Json, T]:
            return value, stage.parse(value)

        with recorder_of(self.cassettes, item, item) as ledger.recorder:
            try:
                reply = await ask_structured(self.model, "author", ledger, stage.messages, stage.schema, parse)
            finally:
                self.usage += ledger.usage()
        return reply.value


async def checked_text(
    author: Author, subject: str, stage: Stage[str], check: Callable[[str], Awaitable[Sequence[str]]]
) -> str:
    """Return the text of a draft that went back to the model with the findings of its checks at most twice.

    ``subject`` is the draft in messages. If the model gives no correction, the text before it is returned, and the
    problem is added to those of the author. Raise InconclusiveError if the model gives no draft at all.
    """
    reply, text = await author.reply(stage)
    name = stage.name
    for number in range(1, CORRECTIONS + 2):
        findings = await check(text)
        if not findings or number > CORRECTIONS:
            break
        request = prompts.render("authoring/findings", findings=findings, what=stage.schema.name)
        answer = Message(role="assistant", content=json.dumps(reply, ensure_ascii=False))
        stage = replace(
            stage,
            name=f"{name}-correction",
            key=sha256([stage.key, number, list(findings)]),
            messages=(*stage.messages, answer, Message(role="user", content=request)),
        )
        try:
            reply, text = await author.reply(stage)
        except InconclusiveError as error:
            author.problems.append(f"{subject}: the correction was abandoned: {error}")
            break
    return text
