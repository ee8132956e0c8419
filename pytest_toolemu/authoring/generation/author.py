"""The model that writes drafts: every reply is validated, recorded if wanted, and stored for a later run."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pytest_toolemu import prompts
from pytest_toolemu.authoring.generation.stage_files import StageFiles
from pytest_toolemu.core.messages import Ledger, Message, Model, ReplySchema, Usage
from pytest_toolemu.core.run import sha256
from pytest_toolemu.errors import InconclusiveError, UsageError
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.models.cassette_files import CassetteDirectory
from pytest_toolemu.models.cassette_recorder import CassetteRecorder
from pytest_toolemu.models.structured_output import ask_structured

T = TypeVar("T")
Json = dict[str, Any]

CORRECTIONS: Final = 2
"""How often a draft goes back to the model with the findings of its checks."""


@dataclass(frozen=True)
class Stage:
    """One request of a draft: ``key`` is a hash of everything that the reply depends on."""

    name: str
    key: str
    messages: tuple[Message, ...]
    schema: ReplySchema


@dataclass
class Author:
    """Asks the model, unless the reply of a stage is stored. ``usage`` sums the tokens of all requests."""

    model: Model
    stages: StageFiles
    cassettes: CassetteDirectory | None = None
    seed: int = 0
    usage: Usage = field(default_factory=Usage)
    problems: list[str] = field(default_factory=list)
    """Why corrections were given up, although there is a draft."""

    async def reply(self, stage: Stage, parse: Callable[[Json], T]) -> T:
        """Return what ``parse`` makes of the stored reply, or of a new one, which is then stored. As ``ask``, else."""
        stored = self.stages.read(stage.name, stage.key)
        if stored is not None:
            return self._parsed(stage, stored, parse)
        reply, result = await self.ask(stage, parse)
        self.stages.write(stage.name, stage.key, reply, self.model.identity)
        return result

    async def ask(self, stage: Stage, parse: Callable[[Json], T]) -> tuple[Json, T]:
        """Return a reply and what ``parse`` makes of it.

        ``parse`` raises ValueError for problems that the schema cannot express; such a reply is sent back at most
        twice. Raise InconclusiveError if no reply can be used.
        """
        ledger = Ledger(self.seed)
        recorder = None
        if self.cassettes is not None:
            item = f"author::{stage.name}-{stage.key[:16]}"
            recorder = ledger.recorder = CassetteRecorder(self.cassettes, item, item, 1)
        ended = False

        def validated(value: Json) -> tuple[Json, T]:
            return value, parse(value)

        try:
            reply = await ask_structured(self.model, "author", ledger, stage.messages, stage.schema, validated)
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

    def _parsed(self, stage: Stage, stored: Any, parse: Callable[[Json], T]) -> T:
        """Parse a stored reply, which people may have edited."""
        path = self.stages.path(stage.name, stage.key)
        problems = violations(stage.schema.schema_, stored)
        try:
            if not problems:
                return parse(stored)
        except ValueError as error:
            problems = str(error).splitlines()
        raise UsageError(f"{path}: {'; '.join(problems)}; correct the file, or delete it to ask the model again")


async def checked_draft(
    author: Author,
    subject: str,
    stage: Stage,
    text_of: Callable[[Json], str],
    check: Callable[[str], Awaitable[Sequence[str]]],
) -> str:
    """Return the text of a draft that went back to the model with the findings of its checks at most twice.

    ``subject`` is the draft in messages. If the model gives no correction, the text before it is returned, and the
    problem is added to those of the author. Raise InconclusiveError if the model gives no draft at all.
    """

    def parse(reply: Json) -> tuple[Json, str]:
        return reply, text_of(reply)

    reply, text = await author.reply(stage, parse)
    name = stage.name
    for number in range(1, CORRECTIONS + 2):
        findings = await check(text)
        if not findings or number > CORRECTIONS:
            break
        request = prompts.render("authoring/findings", findings=findings, what=stage.schema.name)
        answer = Message(role="assistant", content=json.dumps(reply, ensure_ascii=False))
        key = sha256([stage.key, number, list(findings)])
        messages = (*stage.messages, answer, Message(role="user", content=request))
        stage = Stage(f"{name}-correction", key, messages, stage.schema)
        try:
            reply, text = await author.reply(stage, parse)
        except InconclusiveError as error:
            author.problems.append(f"{subject}: the correction was abandoned: {error}")
            break
    return text
