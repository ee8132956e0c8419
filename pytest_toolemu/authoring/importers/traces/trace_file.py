"""Finds the conversations in a file: spans, request logs, or both, as JSON or with one JSON value on each line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.importers.traces.conversation import Conversation, Json, load_json, longest
from pytest_toolemu.authoring.importers.traces.request_logs import conversation_of, is_request
from pytest_toolemu.authoring.importers.traces.run_records import is_record, recorded_conversation
from pytest_toolemu.authoring.importers.traces.spans import Span, conversations_of, spans_of
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.regular_files import read_regular
from pytest_toolemu.formats.yaml_document import too_deep

MAX_BYTES: Final = 100_000_000
"""The largest trace that is read, in bytes."""

_READS: Final = (
    "spans of OpenTelemetry's GenAI conventions (OTLP or SDK), requests to OpenAI or Anthropic, or records of this "
    "package"
)


def read_conversations(path: Path) -> list[Conversation]:
    """Return the conversations in the file that contain a message of a user.

    Raise UsageError if the file cannot be read, or contains none.
    """
    entries = _entries(path)
    if len(entries) == 1 and is_record(entries[0]):
        return [recorded_conversation(load_run(path))]
    spans: list[Span] = []
    requests: list[Conversation] = []
    for entry in entries:
        if found := spans_of(entry):
            spans += found
        elif is_request(entry):
            requests.append(conversation_of(entry))
    conversations = conversations_of(spans) + requests
    if not conversations:
        raise UsageError(f"{path}: contains no conversation; this command reads {_READS}")
    complete = [each for each in longest(conversations) if each.user_messages]
    if not complete:
        raise UsageError(
            f"{path}: contains no message of a user; record the contents of messages, for example with "
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true"
        )
    # In the order of the file, which is that of time.
    return sorted(complete, key=conversations.index)


def _entries(path: Path) -> list[Json]:
    try:
        text = read_regular(path, MAX_BYTES).decode("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; name a file with a trace") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is no UTF-8 text; this command reads {_READS}") from None
    try:
        values: list[Any] = [load_json(text)]
    except ValueError:
        values = [_line(path, number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
    return [entry for entry in flat if isinstance(entry, dict) and not too_deep(entry)]


def _line(path: Path, number: int, line: str) -> Any:
    try:
        return load_json(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is nested too deeply"
        raise UsageError(f"{path}:{number}: neither the file nor this line is JSON: {reason}") from None
