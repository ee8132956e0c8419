"""Finds the conversations in a file with spans, request logs, or both, as one or more JSON values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.importers.notes import Notes, add_note
from pytest_toolemu.authoring.importers.traces.conversation import Conversation, Json, longest
from pytest_toolemu.authoring.importers.traces.json_values import load_values
from pytest_toolemu.authoring.importers.traces.request_logs import conversations_in, is_request
from pytest_toolemu.authoring.importers.traces.run_records import is_record, recorded_conversation
from pytest_toolemu.authoring.importers.traces.spans import Span, conversations_of, is_span, spans_of
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.formats.yaml_document import too_deep

MAX_BYTES: Final = 100_000_000
"""The largest trace that is read, in bytes."""

_READS: Final = (
    "spans of OpenTelemetry's GenAI conventions (OTLP or SDK), requests to OpenAI or Anthropic, or records of this "
    "package"
)


def read_conversations(path: Path, notes: Notes) -> list[Conversation]:
    """Return the conversations in the file that contain a message of a user and a tool, in their order.

    ``notes`` receives what is left out. Raise UsageError if the file cannot be read, or contains no such conversation.
    """
    entries = _entries(path, notes)
    if len(entries) == 1 and is_record(next(iter(entries.values()))):
        return [recorded_conversation(load_run(path), notes)]
    spans: list[Span] = []
    requests: list[Json] = []
    for number, entry in entries.items():
        if found := spans_of(entry):
            spans += found
        elif is_request(entry):
            requests.append(entry)
        elif not is_span(entry):
            add_note(notes, "an entry of the file that is neither a span nor a request is left out", f"entry {number}")
    conversations = longest(conversations_of(spans) + conversations_in(requests, notes))
    if not conversations:
        raise UsageError(f"{path}: contains no conversation; this command reads {_READS}")
    return _complete(path, conversations, notes)


def _complete(path: Path, conversations: list[Conversation], notes: Notes) -> list[Conversation]:
    """Return the conversations that can become cases. Raise UsageError if there is none."""
    asked: list[Conversation] = []
    complete: list[Conversation] = []
    for number, conversation in enumerate(conversations, 1):
        if not conversation.user_messages:
            add_note(notes, "a conversation without a message of a user is left out", f"conversation {number}")
            continue
        asked.append(conversation)
        if conversation.tools or conversation.calls:
            complete.append(conversation)
        else:
            add_note(notes, "a conversation without tools is left out", f"conversation {number}")
    if not asked:
        raise UsageError(
            f"{path}: contains no message of a user; record the contents of messages, for example with "
            "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and "
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only"
        )
    if not complete:
        raise UsageError(
            f"{path}: contains neither tools nor tool calls, which a case needs; import a trace of an agent with tools"
        )
    return complete


def _entries(path: Path, notes: Notes) -> dict[int, Json]:
    """Return the entries of the file by their numbers, which begin at 1."""
    values: list[Any] = []
    for value in _values(path):
        # Anthropic's batches are an object with a list of requests.
        batch = value.get("requests") if isinstance(value, dict) else value
        values += batch if isinstance(batch, list) else [value]
    entries: dict[int, Json] = {}
    for number, entry in enumerate(values, 1):
        if isinstance(entry, dict) and not too_deep(entry):
            entries[number] = entry
        else:
            kind = "an entry of the file that is not an object, or is nested too deeply, is left out"
            add_note(notes, kind, f"entry {number}")
    return entries


def _values(path: Path) -> list[Any]:
    try:
        text = read_regular(path, MAX_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; name a file with a trace") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8 text; this command reads {_READS}") from None
    try:
        return list(load_values(text))
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: is not JSON: {error.msg}; this command reads {_READS}") from None
    except RecursionError:
        raise UsageError(f"{path}: is nested too deeply; this command reads {_READS}") from None
