"""The file of one item's exchanges: JSON that a person can read and compare line by line.

Text is a list of its lines; text that is JSON is that value. A request shows only its new messages, after the earlier
exchange that it begins as. There is no time, id or address in it that would change without the conversation changing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from pytest_toolemu.core.messages import Reply, Role
from pytest_toolemu.formats.escape_invisible import visible
from pytest_toolemu.formats.redaction import redact_json
from pytest_toolemu.formats.stored_json import first_problem
from pytest_toolemu.formats.yaml_document import Record, too_deep
from pytest_toolemu.models.cassettes.request import CassetteEntry, CassetteRequest, Json

VERSION: Final = 1

Place = Annotated[int, Field(ge=0)]

_STYLES: Final = {"json": (", ", ": "), "compact_json": (",", ":")}


@dataclass(frozen=True)
class Cassette:
    """All exchanges of one item. ``complete``: its run came to its end, so nothing of it is missing here."""

    item: str
    case: str
    trial: int
    complete: bool
    entries: tuple[CassetteEntry, ...]


class Beginning(Record):
    """Of an earlier exchange, counted from 1, so many messages."""

    exchange: Annotated[int, Field(ge=1)]
    messages: Annotated[int, Field(ge=1)]


class ExchangeText(Record):
    """One exchange as it stands in a file; ``model``, ``tools`` and ``schema`` are places in the file's lists."""

    number: int
    role: Role
    model: Place
    tools: Place | None = None
    schema_: Place | None = Field(default=None, alias="schema")
    seed: int | None
    begins_as: Beginning | None = None
    messages: list[Json]
    reply: Json


class File(Record):
    """A file of exchanges."""

    toolemu_recording: Literal[1]
    item: str
    case: str
    trial: Annotated[int, Field(ge=1)]
    complete: bool
    exchanges: list[ExchangeText]
    models: list[Json]
    tools: list[list[Json]] = []
    schemas: list[Json] = []


def encode(recording: Cassette) -> str:
    """The recording as the text of its file."""
    tables: dict[str, list[Any]] = {"models": [], "tools": [], "schemas": []}
    exchanges = [_encode_entry(recording.entries, index, tables) for index in range(len(recording.entries))]
    content = {
        "toolemu_recording": VERSION,
        "item": recording.item,
        "case": recording.case,
        "trial": recording.trial,
        "complete": recording.complete,
        "exchanges": exchanges,
        **tables,
    }
    text = json.dumps(redact_json(content), indent=1, ensure_ascii=False)
    return visible(text, lambda char: json.dumps(char)[1:-1]) + "\n"


def decode(text: bytes | str) -> Cassette:
    """Return the recording in a file's text; ValueError, with the place, when it is none of this version."""
    try:
        content = json.loads(text)  # not pydantic's reader, which refuses halves of surrogate pairs
        file = File.model_validate(content)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except ValidationError as error:
        raise ValueError(first_problem(File, text, error.errors(include_url=False))) from None
    entries: list[CassetteEntry] = []
    for number, exchange in enumerate(content["exchanges"], 1):
        try:
            entries.append(_decode_entry(exchange, entries, content))
            Reply.model_validate_json(json.dumps(entries[-1].reply, ensure_ascii=False).encode("utf-8", "replace"))
        except (KeyError, TypeError, IndexError, AttributeError, RecursionError, ValueError):
            raise ValueError(f"exchange {number}: its messages, tools, schema or reply are wrong") from None
    return Cassette(file.item, file.case, file.trial, file.complete, tuple(entries))


def _encode_entry(entries: tuple[CassetteEntry, ...], index: int, tables: dict[str, list[Any]]) -> Json:
    request = entries[index].request
    number, common = _begins_as(entries, index)
    found: Json = {"number": index + 1, "role": request.role, "model": _place(request.model, tables["models"])}
    if request.tools:
        found["tools"] = _place(list(request.tools), tables["tools"])
    if request.schema is not None:
        found["schema"] = _place(request.schema, tables["schemas"])
    found["seed"] = request.seed
    if common:
        found["begins_as"] = {"exchange": number, "messages": common}
    found["messages"] = [_texts(turn, _written) for turn in request.messages[common:]]
    found["reply"] = _texts(entries[index].reply, _written)
    return found


def _decode_entry(exchange: Json, before: list[CassetteEntry], content: Json) -> CassetteEntry:
    start = exchange.get("begins_as", {"exchange": 1, "messages": 0})
    common = before[start["exchange"] - 1].request.messages[: start["messages"]] if start["messages"] else ()
    request = CassetteRequest(
        role=exchange["role"],
        model=content["models"][exchange["model"]],
        messages=(*common, *(_texts(turn, _read) for turn in exchange["messages"])),
        tools=tuple(content["tools"][exchange["tools"]]) if "tools" in exchange else (),
        schema=content["schemas"][exchange["schema"]] if "schema" in exchange else None,
        seed=exchange["seed"],
        trial=content["trial"],
    )
    return CassetteEntry(request, _texts(exchange["reply"], _read))


def reply_of(entry: CassetteEntry) -> Reply:
    """The recorded reply; ValueError when it is none."""
    return Reply.model_validate_json(json.dumps(entry.reply))


def _begins_as(entries: tuple[CassetteEntry, ...], index: int) -> tuple[int, int]:
    """The latest earlier exchange with the most messages in common at the start, from 1, and how many those are."""
    messages, best = entries[index].request.messages, (0, 0)
    for number in range(index, 0, -1):
        other = entries[number - 1].request.messages
        pairs = zip(messages, other, strict=False)
        common = next((place for place, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
        common = min(len(messages), len(other)) if common is None else common
        if common > best[1]:
            best = (number, common)
    return best


def _place(value: Any, table: list[Any]) -> int:
    if value not in table:
        table.append(value)
    return table.index(value)


def _texts(turn: Json, change: Callable[[Any], Any]) -> Json:
    """A message or reply with its long texts changed: content, text, and the arguments of calls."""
    found = {name: change(value) if name in ("content", "text") else value for name, value in turn.items()}
    if "calls" in found:
        found["calls"] = [{**call, "arguments": change(call["arguments"])} for call in found["calls"]]
    return found


def _written(text: str) -> Any:
    """As its value where it is JSON that is written back the same, else as its lines, where it has several."""
    if text[:1] in ("{", "["):
        for style, separators in _STYLES.items():
            try:
                value = json.loads(text)
                if not too_deep(value) and json.dumps(value, ensure_ascii=False, separators=separators) == text:
                    return {style: value}
            except (ValueError, RecursionError):
                break
    return text.split("\n") if "\n" in text else text


def _read(written: Any) -> str:
    if isinstance(written, list):
        return "\n".join(written)
    if isinstance(written, dict):
        ((style, value),) = written.items()
        return json.dumps(value, ensure_ascii=False, separators=_STYLES[style])
    return str(written)
