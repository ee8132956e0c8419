"""Short texts for people: durations, amounts, and shortened and visible text."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable
from decimal import Decimal
from json import dumps
from typing import Any, Final, NoReturn


def clock_text(seconds: float) -> str:
    """Return a duration of at least 0 seconds as ``0:48``, ``12:05``, or ``1:02:03``; fractions are cut off."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def compact_json(value: Any) -> str:
    """Return a value as JSON on one line, without spaces between its parts and without unnecessary escapes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for ``NaN`` and ``Infinity``, which are no JSON; for ``parse_constant`` of Python's reader."""
    raise ValueError(f"{name} is not valid JSON")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural: ``1 run``, ``1,234 runs``, ``2 batches``."""
    plural = "es" if noun.endswith(("ch", "ss")) else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def exception_text(error: BaseException) -> str:
    """Return the message of an exception, even if the code of its class raises another exception instead of one."""
    try:
        return str(error)
    except BaseException as problem:
        return f"(no message: its __str__ raised {type(problem).__name__})"


def truncated(text: str, limit: int) -> str:
    """Return text of at most ``limit`` characters; an ellipsis replaces the end of a longer text."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def usd_text(usd: float) -> str:
    """Return USD with as many digits as are meaningful: ``12.35``, ``0.012``, ``0.00002``, ``0``."""
    return "0" if not usd else f"{usd:,.2f}" if usd >= 0.1 else f"{Decimal(f'{usd:.2g}'):f}"


def sum_text(known_sum: str, *, nothing_known: bool, incomplete: bool) -> str:
    """Return ``1.25``; ``at least 1.25`` if a part of the sum is unknown; ``unknown`` if all of it is."""
    if not incomplete:
        return known_sum
    return "unknown" if nothing_known else f"at least {known_sum}"


@functools.lru_cache(512)
def escape(char: str) -> str:
    r"""Return a character as ``\xhh``, ``\uhhhh``, or ``\Uhhhhhhhh``."""
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# C0 except newline and tab, DEL, and C1; lone surrogates, which UTF-8 cannot encode; line and paragraph separators;
# everything that Unicode lists as Default_Ignorable_Code_Point except variation selectors and joiners; characters that
# look blank but are not spaces.
_INVISIBLE: Final = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b\\u200e\\u200f"
    "\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ud800-\\udfff\\ufeff\\uffa0\\ufff0-\\ufffb"
    "\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff"
)
_EMOJI: Final = "#*0-9\\u00a9\\u00ae\\u203c-\\u3299\\U0001f000-\\U0001faff"
# Scripts in which joiners change the form of letters: Arabic, Syriac, N'Ko, Indic, Mongolian.
_JOINING: Final = "\\u0600-\\u08ff\\u0900-\\u0dff\\u1000-\\u109f\\u1780-\\u18af\\ufb50-\\ufdff\\ufe70-\\ufefc"
_SELECTOR: Final = re.compile(f"(?<=[{_EMOJI}])[\\ufe0e\\ufe0f]")
_JOINER: Final = re.compile(f"(?<=[{_EMOJI}\\ufe0f{_JOINING}])[\\u200c\\u200d](?=[{_EMOJI}{_JOINING}])")
# A plain character set is ten times as fast as a pattern that also checks the neighbors, so they are checked later.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SUSPECT: Final = re.compile(f"[{_INVISIBLE}\\u200c\\u200d\\ufe00-\\ufe0f]")


def visible(text: str, escaped: Callable[[str], str] = escape) -> str:
    r"""Return the text with each hidden character as an escape such as ``\x1b`` or ``\u202e``; lines stay lines.

    Selectors after an emoji, and joiners between emoji or between letters that join, do not count as hidden.
    """
    if text.isascii() and (text.isprintable() or not _CONTROL.search(text)):
        return text
    return _SUSPECT.sub(lambda match: match[0] if _is_regular(match) else escaped(match[0]), text.replace("\r\n", "\n"))


def _is_regular(match: re.Match[str]) -> bool:
    """Return whether a selector or joiner is where regular text has one."""
    if match[0] not in "\u200c\u200d\ufe0e\ufe0f":
        return False
    return any(pattern.match(match.string, match.start()) for pattern in (_SELECTOR, _JOINER))


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
    text = visible(text, lambda char: dumps(char)[1:-1])
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else dumps(char)[1:-1] for char in text)


def unused_code(seed: int, text: str, digits: int = 16) -> str:
    """Return hexadecimal digits that do not occur in the text, for marks around it; they depend on seed and text."""
    hashes = (hashlib.sha256(f"{seed}:{attempt}:{text}".encode()).hexdigest() for attempt in itertools.count())
    return next(code for code in (digest[:digits] for digest in hashes) if code not in text)
