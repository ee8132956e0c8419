"""Keeps credentials out of everything that is written or shown."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Final

# Names of variables that hold credentials. Shorter values are left alone: they would eat ordinary words.
_SECRET_NAME: Final = re.compile(r"(?i)(api_?key|_key$|^key$|token|secret|passw(or)?d|credential)")
_MIN_LENGTH: Final = 8
# Everything that can move a cursor, colour a terminal, hide text or turn its direction, but not newline and tab; and
# half characters (lone surrogates), which no file takes.
_BAD: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
_CONTROL: Final = re.compile(rf"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)?|\x1b.|{_BAD}")
# A report shows a hundred thousand texts, and hardly one has any of these: this is ten times as fast as to replace.
_ANY: Final = re.compile(_BAD)


def secrets(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Value of each credential in the environment: the name of its variable. Longest first, so that none is cut."""
    given = os.environ if environ is None else environ
    # Not items(): pytest sets and deletes a variable for each test while runs are written on other threads.
    values = ((name, given.get(name, "")) for name in given if _SECRET_NAME.search(name))
    found = {value: name for name, value in values if len(value) >= _MIN_LENGTH and not value.startswith(("/", "."))}
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def redact(text: str, known: Mapping[str, str] | None = None) -> str:
    """The text with every known credential replaced by ``[NAME redacted]``."""
    for value, name in (secrets() if known is None else known).items():
        if value in text:
            text = text.replace(value, f"[{name} redacted]")
    return text


def redact_json(value: Any, known: Mapping[str, str] | None = None) -> Any:
    """The same for a JSON value, in keys and values."""
    known = secrets() if known is None else known
    if not known:
        return value
    if isinstance(value, str):
        return redact(value, known)
    if isinstance(value, list):
        return [redact_json(item, known) for item in value]
    if isinstance(value, dict):
        return {redact(key, known): redact_json(item, known) for key, item in value.items()}
    return value


def plain(text: str, known: Mapping[str, str] | None = None) -> str:
    """Text from a model made safe for a terminal: no control sequences, no credentials."""
    if not text.isprintable() and _ANY.search(text):
        text = _CONTROL.sub("�", text.replace("\r\n", "\n"))
    return redact(text, known)


# GitHub's runner obeys the first at the head of a line, behind blanks too, and the second anywhere.
_COMMAND: Final = re.compile(r"^(\s*)(::)|(#)(#\[)", re.MULTILINE)


def in_log(text: str) -> str:
    """Text for a log: in a job of GitHub Actions, whose runner takes commands from it, without any."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return text
    return _COMMAND.sub(lambda found: f"{found[1] or found[3] or ''}\\{found[2] or found[4]}", text)


def quoted(value: Any) -> str:
    """A value as one line of JSON; control, formatting and other invisible characters are escaped, letters are not."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
