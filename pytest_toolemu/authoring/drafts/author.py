"""The model that writes drafts: every reply is validated, recorded if wanted, and stored for a later run."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError

from pytest_toolemu import prompts
from pytest_toolemu.core.messages import Ledger, Message, Model, ReplySchema, Usage
from pytest_toolemu.core.run import sha256
from pytest_toolemu.errors import InconclusiveError, UsageError
from pytest_toolemu.formats.file_access import read_regular, write_atomically
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.yaml_document import Record, format_location
from pytest_toolemu.models.cassette_files import CassetteDirectory
from pytest_toolemu.models.cassette_recorder import CassetteRecorder
from pytest_toolemu.models.structured_output import ask_structured

T = TypeVar("T")
R = TypeVar("R", bound=Record)
Json = dict[str, Any]

CORRECTIONS: Final = 2
"""How often a draft goes back to the model with the findings of its checks."""

_MAX_BYTES: Final = 4_000_000
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
            stored = json.loads(read_regular(path, _MAX_BYTES))
            if stored["key"] != key:
                raise ValueError("it belongs to a different request")
            return stored["reply"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(f"{path}: cannot be read ({error}); delete the file to ask the model again") from None

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
        path = self.drafts / self.name(stage, key)
        content = {"stage": stage, "key": key, "model": model, "reply": reply}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be written: {error.strerror}; choose another folder with --into"
            ) from None


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
        ledger = Ledger(0)
        recorder = None
        if self.cassettes is not None:
            item = f"author::{stage.name}-{stage.key[:16]}"
            recorder = ledger.recorder = CassetteRecorder(self.cassettes, item, item, 1)
        ended = False

        def parse(value: Json) -> tuple[Json, T]:
            return value, stage.parse(value)

        try:
            reply = await ask_structured(self.model, "author", ledger, stage.messages, stage.schema, parse)
            ended = True
        except InconclusiveError:
            ended = True
            raise
        finally:
            # Also after a failure: replies that arrived were paid for.
            self.usage += ledger.usage()
            if recorder is not None:
                recorder.finish(ended)
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
