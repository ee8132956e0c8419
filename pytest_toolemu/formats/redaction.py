"""Replace secrets at the exits: files, the terminal and logs, pages, and requests to other providers.

Between the exits, text contains what agents and models wrote. A secret is recognized as it is, in JSON, in a URL, in
HTML, and as the base64 of the whole value.
"""

from __future__ import annotations

import functools
import html
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from json import dumps
from typing import Any, Final
from urllib.parse import quote, quote_plus

from pytest_toolemu.formats.credentials import REGISTRY, is_secret

# Text that was shortened may end within a secret, so this beginning of a long one is replaced before an ellipsis.
_BEGINNING: Final = 8
_CUT: Final = r"[^\s\"'<>\\]{0,200}?(?=…|\.\.\.|\\u2026|\Z)"


class Redactor:
    """Replace every form of some secrets, given as values with names, by ``[NAME redacted]``."""

    def __init__(self, values: Mapping[str, str]) -> None:
        labels: dict[str, str] = {}
        self._beginnings: list[tuple[str, str]] = []
        for value, name in values.items():
            if is_secret(value):
                label = f"[{re.sub(r'[^A-Za-z0-9_-]', '', name) or 'secret'} redacted]"
                labels |= dict.fromkeys(_forms(value), label)
                if len(value) > _BEGINNING:
                    self._beginnings.append((value[:_BEGINNING], label))
        # Longest first: otherwise a secret that contains another one would be cut by its replacement.
        self._labels = sorted(labels.items(), key=lambda item: -len(item[0]))

    def __bool__(self) -> bool:
        return bool(self._labels)

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        for form, label in self._labels:
            text = text.replace(form, label)
        for beginning, label in self._beginnings:
            if beginning in text:
                text = re.sub(re.escape(beginning) + _CUT, label, text)
        return text


def _forms(value: str) -> Iterator[str]:
    """Yield a secret as it is written in text, JSON, JSON in JSON, HTML, URLs, and base64."""
    data = value.encode("utf-8", "surrogatepass")
    yield value
    for ensure_ascii in (True, False):
        in_json = dumps(value, ensure_ascii=ensure_ascii)[1:-1]
        yield from (in_json, dumps(in_json, ensure_ascii=ensure_ascii)[1:-1])
    yield html.escape(value).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")  # as templates do
    yield from (quote(data, safe=""), quote(data), quote_plus(data))
    for encode in (b64encode, urlsafe_b64encode):
        yield encode(data).decode().rstrip("=")


@functools.lru_cache(16)
def _redactor(values: tuple[tuple[str, str], ...]) -> Redactor:
    return Redactor(dict(values))


def secrets(known_to_receiver: str | None = None) -> Redactor:
    """Return the redactor for all secrets of this process, except one that the receiver of the text knows."""
    return _redactor(tuple((value, name) for value, name in REGISTRY.values() if value != known_to_receiver))


def redact(text: str) -> str:
    """Return the text with every secret replaced by ``[NAME redacted]``."""
    return secrets()(text)


def redact_writes(file: Any, is_on: Callable[[], bool] = lambda: True) -> None:
    """Make ``write`` of a stream or a terminal writer replace secrets while ``is_on``."""
    write = file.write

    def write_redacted(text: str, **options: Any) -> Any:
        return write(redact(text) if is_on() else text, **options)

    file.write = write_redacted


def redact_json(value: Any, redactor: Redactor | None = None) -> Any:
    """Return a JSON value with every secret in its keys and strings replaced."""
    redactor = secrets() if redactor is None else redactor
    if not redactor:
        return value
    if isinstance(value, str):
        return redactor(value)
    if isinstance(value, list | tuple):
        return type(value)(redact_json(item, redactor) for item in value)
    if isinstance(value, dict):
        return {redactor(key): redact_json(item, redactor) for key, item in value.items()}
    return value
