"""Records as the text of their files: JSON with a line for each value, in ASCII, without credentials."""

from __future__ import annotations

from json import dumps, loads
from typing import Any

from pydantic_core import to_json

from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.formats.yaml_document import Record


def record_text(record: Record) -> str:
    """Return a run or a part of one as the text of a file, without secrets: its hash names a part."""
    try:
        text = to_json(record, indent=1, ensure_ascii=True, by_alias=False).decode()
    except ValueError:  # see json_text_of
        text = json_text_of(record.model_dump(mode="json"))
    return redact(text) + "\n"


def json_text_of(content: dict[str, Any]) -> str:
    """Return JSON with a line for each value, escaped to ASCII so that no text can make the file unreadable."""
    try:
        # The standard library takes ten times as long with one line per value, and a record has thousands.
        return to_json(content, indent=1, ensure_ascii=True).decode()
    except ValueError:  # half of a surrogate pair, for example in a file name, which JSON readers refuse
        encoded = dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        return to_json(loads(encoded), indent=1, ensure_ascii=True).decode()
