"""Keeps secrets and deceptive text out of everything that is written or shown.

Secrets appear in many forms: escaped by JSON or repr, quoted in URLs, encoded in headers, cut off in error messages.
All of them are replaced, in time linear in the text, as an agent or a provider chooses the text.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from json import dumps
from typing import Any, Final

from pytest_toolemu.formats.compact_json import compact_json
from pytest_toolemu.formats.escape_invisible import visible
from pytest_toolemu.formats.secrets.secret_forms import Rule, forms
from pytest_toolemu.formats.secrets.secret_registry import REGISTRY, in_environment, rule_for

# Text before a value that is redacted only in such a context: "Incorrect API key provided: x", "Authorization: Bearer
# x".
_CONTEXT: Final = re.compile(
    r"(?i)(?:key|token|secret|passw(?:or)?d|passphrase|bearer|basic|authorization|credentials?)s?"
    r"(?:[\"'\s:=,(\[{]{1,6}(?:is|was|of|provided|given|invalid|incorrect|wrong|value|with|bearer|basic)){0,3}"
    r"[\"'\s:=,(\[{\\]{1,6}\Z"  # nothing longer than _BEFORE
)
_BEFORE: Final = 60
# The shortest part of a cut secret that is redacted, at the ends of a text and next to an ellipsis.
_PIECE: Final = 16

# A short secret after a letter or digit is part of a word, unless that character ends an escape such as \n or %20.
_WORD: Final = re.compile(r"[A-Za-z0-9]\Z")
_ESCAPE: Final = re.compile(r"(?:\\[abfnrtv0]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4})\Z")


@dataclass(frozen=True)
class _Search:
    """The search for one form of one secret."""

    needle: str
    pattern: str | None
    """Compiled when it is used: compiling all of them would delay every session."""
    rule: Rule
    label: str

    def replace(self, text: str) -> str:
        """Return the text with every match replaced by the label."""
        if self.pattern is None:
            return text.replace(self.needle, self.label)
        return re.sub(self.pattern, self._decide, text)

    def _decide(self, match: re.Match[str]) -> str:
        if self.rule == "anywhere":
            return self.label
        before = match.string[max(0, match.start() - _BEFORE) : match.start()]
        if _WORD.search(before) and not _ESCAPE.search(before):
            return match[0]
        return self.label if self.rule == "token" or _CONTEXT.search(before) else match[0]


class Redactor:
    """Replaces every form of some secrets, given as values with names, by ``[NAME redacted]``, in linear time."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)
        self._searches: list[_Search] = []
        self._long: list[tuple[str, str]] = []
        # Longest first: otherwise a secret that contains another one would be cut by its replacement.
        for value, name in sorted(values.items(), key=lambda item: -len(item[0])):
            rule = rule_for(value)
            if rule is None:
                continue
            label = f"[{re.sub(r'[^A-Za-z0-9_-]', '', name) or 'secret'} redacted]"
            for form in forms(value, rule):
                self._searches.append(_Search(form.needle, form.pattern, rule, label))
            if rule == "anywhere" and len(value) > _PIECE:
                self._long.append((value, label))
        # A text without any of these contains no secret, so most texts need only this check. A needle that contains a
        # piece is not needed, as the piece finds it.
        pieces = [piece for value, _ in self._long for piece in (value[:_PIECE], value[-_PIECE:])]
        needles = [search.needle for search in self._searches]
        needles = [needle for needle in needles if not any(piece in needle for piece in pieces)]
        self._needles = tuple(dict.fromkeys((*pieces, *needles)))

    def __bool__(self) -> bool:
        return bool(self._searches)

    def suspects(self, text: str) -> bool:
        """Return whether a text may contain a secret; False is certain, also for JSON text with escapes."""
        return any(needle in text for needle in self._needles)

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        if not self.suspects(text):
            return text
        for search in self._searches:
            if search.needle in text:
                text = search.replace(text)
        for value, label in self._long:
            if value[:_PIECE] in text or value[-_PIECE:] in text:
                text = _without_pieces(text, value, label)
        return text


def _without_pieces(text: str, value: str, label: str) -> str:
    """Return the text without parts of a secret that was cut, at the ends of the text or next to an ellipsis."""
    parts: list[str] = []
    position = 0
    for start, end in sorted(_pieces(text, value)):
        if start >= position:
            parts += [text[position:start], label]
            position = end
    return "".join((*parts, text[position:]))


def _pieces(text: str, value: str) -> Iterator[tuple[int, int]]:
    start = text.find(value[:_PIECE])
    while start >= 0:
        end = start + _common(value, text[start : start + len(value)])
        if end == len(text) or text.startswith(("...", "…"), end):
            yield start, end
        start = text.find(value[:_PIECE], end)
    end = text.find(value[-_PIECE:]) + _PIECE
    while end >= _PIECE:
        before = text[max(0, end - len(value)) : end]
        start = end - _common(value[::-1], before[::-1])
        if start == 0 or text.endswith(("...", "…"), 0, start):
            yield start, end
        end = text.find(value[-_PIECE:], end) + _PIECE


def _common(one: str, other: str) -> int:
    """Return the length of the common beginning."""
    pairs = zip(one, other, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@functools.lru_cache(16)
def _redactor(values: tuple[tuple[str, str], ...]) -> Redactor:
    return Redactor(dict(values))


def secrets(environ: Mapping[str, str] | None = None) -> Redactor:
    """Return the redactor for the secrets of an environment; without one, for all secrets of this process."""
    return _redactor(REGISTRY.values() if environ is None else in_environment(environ))


def redact(text: str, redactor: Redactor | None = None) -> str:
    """Return the text with every secret replaced by ``[NAME redacted]``."""
    return (secrets() if redactor is None else redactor)(text)


def redact_json(value: Any, redactor: Redactor | None = None) -> Any:
    """Return a JSON value with every secret in its keys and strings replaced."""
    redactor = secrets() if redactor is None else redactor
    if not redactor:
        return value
    if isinstance(value, str):
        return redactor(value)
    if isinstance(value, list):
        return [redact_json(item, redactor) for item in value]
    if isinstance(value, dict):
        return {redactor(key): redact_json(item, redactor) for key, item in value.items()}
    return value


def plain(text: str, redactor: Redactor | None = None) -> str:
    """Return text of a model in a form that is safe to show: without secrets, and with hidden characters escaped."""
    return visible(redact(text, redactor))


# GitHub's runner executes the first at the start of a line, also after blanks, and the second anywhere.
_COMMAND: Final = re.compile(r"^([^\S\n]*)(::)|(#)(#\[)", re.MULTILINE)


def in_log(text: str) -> str:
    """Return text for a log. In a GitHub Actions job, escape what its runner would execute as commands."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return text
    return _COMMAND.sub(lambda match: f"{match[1] or match[3] or ''}\\{match[2] or match[4]}", text)


def quoted(value: Any, *, compact: bool = False) -> str:
    """Return a value as one line of JSON; control, formatting, and other invisible characters are escaped."""
    text = compact_json(value) if compact else dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else dumps(char)[1:-1] for char in text)
