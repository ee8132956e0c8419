"""Cassettes: recorded model calls in canonical form, their files, and the directory of a project's files."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from pytest_toolemu.core.messages import Reply, Role
from pytest_toolemu.core.run import json_text
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.file_access import first_problem, read_regular, write_atomically
from pytest_toolemu.formats.redaction import Redactor, redact_json
from pytest_toolemu.formats.text import visible
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.settings.option_table import RecordMode

Json = dict[str, Any]


@dataclass(frozen=True)
class CassetteRequest:
    """A request as JSON values without credentials, so that it is the same on machines without the credential.

    The base URL in ``model`` is for readers; it does not matter where a model is served.
    """

    role: Role
    model: Json
    messages: tuple[Json, ...]
    tools: tuple[Json, ...]
    schema: Json | None
    seed: int | None
    trial: int

    @functools.cached_property
    def key(self) -> str:
        """Hash of everything but the base URL."""
        return _hash([self.constants, self.schema, self.seed, self.trial, [_hash(turn) for turn in self.messages]])

    @functools.cached_property
    def constants(self) -> str:
        """Hash of what all requests of a conversation share: role, model, parameters, system prompt, tools."""
        system = [turn for turn in self.messages if turn["role"] == "system"]
        return _hash([self.role, self.model_without_url, self.tools, system])

    @property
    def model_without_url(self) -> Json:
        """The model and its parameters without the base URL."""
        return {name: value for name, value in self.model.items() if name != "base_url"}


@dataclass(frozen=True)
class CassetteEntry:
    """One recorded model call: a request, and the reply as JSON."""

    request: CassetteRequest
    reply: Json


def as_json(record: Record, redactor: Redactor) -> Json:
    """Return a message, tool, schema, or reply as JSON, without credentials, request ID, and lost attempts."""
    content = record.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={"request_id", "lost_attempts"}
    )
    redacted: Json = redact_json(content, redactor)
    return redacted


def _hash(value: Any) -> str:
    return hashlib.sha256(json_text(value).encode("utf-8", "surrogatepass")).hexdigest()


VERSION: Final = 1

Position = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Cassette:
    """All model calls of one item. ``complete`` says that the run came to its end, so no call is missing."""

    item: str
    case: str
    trial: int
    complete: bool
    entries: tuple[CassetteEntry, ...]


class Beginning(Record):
    """The first messages of a request: this many messages of an earlier call, which is counted from 1."""

    model_call: Annotated[int, Field(ge=1)]
    messages: Annotated[int, Field(ge=1)]


class StoredCall(Record):
    """One model call in a file; ``model``, ``tools``, and ``schema`` are positions in the file's lists."""

    number: int
    role: Role
    model: Position
    tools: Position | None = None
    schema_: Position | None = Field(default=None, alias="schema")
    seed: int | None
    begins_as: Beginning | None = None
    messages: list[Json]
    reply: Json


class CassetteFile(Record):
    """The content of a cassette file."""

    toolemu_recording: Literal[1]
    item: str
    case: str
    trial: Annotated[int, Field(ge=1)]
    complete: bool
    model_calls: list[StoredCall]
    models: list[Json]
    tools: list[list[Json]] = []
    schemas: list[Json] = []


def encode(cassette: Cassette) -> str:
    """Return the text of a cassette's file."""
    tables: dict[str, list[Any]] = {"models": [], "tools": [], "schemas": []}
    calls = [_encode_entry(cassette.entries, index, tables) for index in range(len(cassette.entries))]
    content = {
        "toolemu_recording": VERSION,
        "item": cassette.item,
        "case": cassette.case,
        "trial": cassette.trial,
        "complete": cassette.complete,
        "model_calls": calls,
        **tables,
    }
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return visible(text, lambda char: json.dumps(char)[1:-1]) + "\n"


def decode(text: bytes | str) -> Cassette:
    """Return the cassette in a file's text; ValueError, with the location, if it is none of this version."""
    try:
        content = json.loads(text)  # not Pydantic's reader, which refuses lone surrogates
        file = CassetteFile.model_validate(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValidationError as error:
        raise ValueError(first_problem(CassetteFile, text, error.errors(include_url=False))) from None
    entries: list[CassetteEntry] = []
    for number, stored_call in enumerate(content["model_calls"], 1):
        try:
            entries.append(_decode_entry(stored_call, entries, content))
            Reply.model_validate_json(json.dumps(entries[-1].reply, ensure_ascii=False).encode("utf-8", "replace"))
        except (KeyError, TypeError, IndexError, AttributeError, RecursionError, ValueError):
            raise ValueError(f"model call {number}: its messages, tools, schema, or reply are not valid") from None
    return Cassette(file.item, file.case, file.trial, file.complete, tuple(entries))


def _encode_entry(entries: tuple[CassetteEntry, ...], index: int, tables: dict[str, list[Any]]) -> Json:
    request = entries[index].request
    number, common = _begins_as(entries, index)
    call: Json = {"number": index + 1, "role": request.role, "model": _position(request.model, tables["models"])}
    if request.tools:
        call["tools"] = _position(list(request.tools), tables["tools"])
    if request.schema is not None:
        call["schema"] = _position(request.schema, tables["schemas"])
    call["seed"] = request.seed
    if common:
        call["begins_as"] = {"model_call": number, "messages": common}
    call["messages"] = [_texts(turn, _stored_text) for turn in request.messages[common:]]
    call["reply"] = _texts(entries[index].reply, _stored_text)
    return call


def _decode_entry(stored_call: Json, before: list[CassetteEntry], content: Json) -> CassetteEntry:
    start = stored_call.get("begins_as", {"model_call": 1, "messages": 0})
    common = before[start["model_call"] - 1].request.messages[: start["messages"]] if start["messages"] else ()
    request = CassetteRequest(
        role=stored_call["role"],
        model=content["models"][stored_call["model"]],
        messages=(*common, *(_texts(turn, _loaded_text) for turn in stored_call["messages"])),
        tools=tuple(content["tools"][stored_call["tools"]]) if "tools" in stored_call else (),
        schema=content["schemas"][stored_call["schema"]] if "schema" in stored_call else None,
        seed=stored_call["seed"],
        trial=content["trial"],
    )
    return CassetteEntry(request, _texts(stored_call["reply"], _loaded_text))


def reply_of(entry: CassetteEntry) -> Reply:
    """Return the recorded reply; ValueError if it is invalid."""
    return Reply.model_validate_json(json.dumps(entry.reply))


def _begins_as(entries: tuple[CassetteEntry, ...], index: int) -> tuple[int, int]:
    """Find the earlier call with the most common messages at the start; return its number and that of the messages.

    Calls are counted from 1. Of several such calls, the latest is taken; without any, the number of messages is 0.
    """
    messages = entries[index].request.messages

    def common(other: tuple[Json, ...]) -> int:
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(messages, other, strict=False)))

    earlier = ((common(entry.request.messages), number) for number, entry in enumerate(entries[:index], 1))
    most, number = max(earlier, default=(0, 0))
    return number, most


def _position(value: Any, table: list[Any]) -> int:
    if value not in table:
        table.append(value)
    return table.index(value)


def _texts(turn: Json, change: Callable[[Any], Any]) -> Json:
    """Apply ``change`` to the long texts of a message or reply: content, text, and the arguments of calls."""
    changed = {name: change(value) if name in ("content", "text") else value for name, value in turn.items()}
    if "calls" in changed:
        changed["calls"] = [{**call, "arguments": change(call["arguments"])} for call in changed["calls"]]
    return changed


def _stored_text(text: str) -> list[str] | str:
    """Return the lines of a text with several, which are easier to compare."""
    return text.split("\n") if "\n" in text else text


def _loaded_text(stored: Any) -> str:
    return "\n".join(stored) if isinstance(stored, list) else str(stored)


SUFFIX: Final = ".json"
_PATTERN: Final = f"*--*{SUFFIX}"
_LONGEST: Final = 100
_MAX_BYTES: Final = 256 * 1024 * 1024


class CassetteDirectory:
    """The cassettes of many items. Each has a file of its own, so parallel cases never write to the same file."""

    def __init__(self, folder: Path, mode: RecordMode) -> None:
        self.folder = folder
        self.mode = mode

    def file(self, item: str) -> str:
        """Return the name of an item's file: its readable name and a hash, because names are not unique."""
        name = re.sub(r"[^A-Za-z0-9.]+", "-", item.rpartition("::")[2])[:_LONGEST].strip("-.")
        return f"{name}--{hashlib.sha256(item.encode()).hexdigest()[:6]}{SUFFIX}"

    def load(self, item: str) -> Cassette | None:
        """Return an item's cassette; None if there is none. UsageError if the file cannot be read."""
        path = self.folder / self.file(item)
        try:
            return decode(read_regular(path, _MAX_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            remedy = "restore the file, or delete it and record it again with --toolemu-record=new"
            raise UsageError(f"{path}: not a cassette that this version reads ({reason}); {remedy}") from None

    def save(self, cassette: Cassette) -> None:
        """Write an item's cassette atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / self.file(cassette.item), encode(cassette))

    def files(self) -> list[Path]:
        """List the files of all cassettes, sorted by name."""
        return sorted(self.folder.glob(_PATTERN))

    def elsewhere(self, key: str, nth: int) -> tuple[str, CassetteEntry] | None:
        """Return the reply that another item got to the nth identical request (from 0), with the name of its file.

        Only for replays that write nothing: otherwise the result would depend on which item is recorded first.
        """
        by_file = self._by_key.get(key, {}).items()
        return next(((name, entries[nth]) for name, entries in by_file if nth < len(entries)), None)

    def of_case(self, case: str) -> list[tuple[str, Cassette]]:
        """Return the cassettes of a case by all agents, with the names of their files."""
        return [(name, cassette) for name, cassette in self._all.items() if cassette.case == case]

    @functools.cached_property
    def _all(self) -> dict[str, Cassette]:
        cassettes = {}
        for path in self.files():
            with contextlib.suppress(OSError, ValueError):  # reported when its own item is run
                cassettes[path.name] = decode(read_regular(path, _MAX_BYTES))
        return cassettes

    @functools.cached_property
    def _by_key(self) -> dict[str, dict[str, list[CassetteEntry]]]:
        entries: dict[str, dict[str, list[CassetteEntry]]] = defaultdict(lambda: defaultdict(list))
        for name, cassette in self._all.items():
            for entry in cassette.entries:
                entries[entry.request.key][name].append(entry)
        return entries
