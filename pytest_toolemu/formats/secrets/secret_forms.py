"""Regular expressions for the forms in which a secret can appear: raw, trimmed, escaped, URL-quoted, base64.

Every repetition in them is bounded, so a search takes linear time on any text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from html.entities import codepoint2name
from typing import Final, Literal

Rule = Literal["anywhere", "token", "context"]
"""Where a secret is replaced: anywhere, also inside words; as a whole token; or only after a word such as "key"."""

# Characters that JSON, HTML, URLs, and repr() do not escape.
_SAFE: Final = re.compile(r"[A-Za-z0-9_.~-]+")
# Text may be escaped several times, for example for JSON, then for HTML, then for a URL.
_BACKSLASHES: Final = r"(?:\\{1,8}|(?:%(?:25){0,3}5[cC]){1,8})"
_AMPERSAND: Final = rf"(?:&|{_BACKSLASHES}(?:u00|x)26|%(?:25){{0,3}}26)"
_SEMICOLON: Final = r"(?:;|%(?:25){0,3}3[bB])"
_LETTERS: Final = {"\a": "a", "\b": "b"}
_BLANKS: Final = " \t\n\v\f\r"
_BLANK: Final = (
    rf"(?:[{_BLANKS}+]|%(?:25){{0,3}}(?i:20|09|0[a-d])|{_BACKSLASHES}(?:[nrtfv]|(?i:(?:u00|x)(?:20|09|0[a-d])))|&nbsp;)"
    "{1,16}"
)
# Shorter parts of base64 text also occur by chance.
_MIN_BASE64: Final = 6
_MIN_HALF: Final = 8
# In PEM; the lines of MIME have 76 characters.
_MIN_LINE: Final = 64
_LINE_BREAK: Final = rf"(?:{_BACKSLASHES}[rn]|[\r\n]|&(?:amp;)?#(?:1[03]|[xX]0?[aAdD]);){{0,4}}"


@dataclass(frozen=True)
class Form:
    """One form of a secret. Every match contains ``needle``; without a pattern, ``needle`` is the whole match."""

    pattern: str | None
    needle: str


def forms(value: str, rule: Rule) -> Iterator[Form]:
    """Yield every form of a secret to search for. The value must not be empty."""
    if rule == "anywhere" and _SAFE.fullmatch(value):
        yield Form(None, value)
    else:
        runs = list(_runs(value))
        end = "" if rule == "anywhere" else "(?![A-Za-z0-9])"
        yield Form("".join(pattern for pattern, _ in runs) + end, max((text for _, text in runs), key=len, default=""))
    if rule != "context":
        for text in _base64(value.encode("utf-8", "surrogatepass")):
            needle = max(re.findall("[A-Za-z0-9]+", text), key=len, default="")
            yield Form(None if needle == text else "".join(map(_base64_char, text)), needle)
            yield from _with_line_breaks(text)


def _runs(value: str) -> Iterator[tuple[str, str]]:
    """Yield the pattern and the literal text of each part of a value; the text is empty if the part may be escaped."""
    for part in re.findall(r"[A-Za-z0-9_.~-]+|[ \t\n\v\f\r]+|\\+|.", value, re.DOTALL):
        if _SAFE.fullmatch(part):
            yield re.escape(part), part
        elif part[0] in _BLANKS:
            # Blanks may be escaped, or collapsed to one space.
            yield _BLANK, ""
        elif part[0] == "\\":
            percent, entity = _percent(part[0]), _entity(part[0])
            times = f"{{{len(part)},{8 * len(part)}}}"
            yield rf"(?:\\{times}|(?:{percent}|{entity}){times})", ""
        else:
            yield f"(?:{'|'.join(_escapes(part))})", ""


def _escapes(char: str) -> Iterator[str]:
    """Yield the forms of one character: raw, and as escaped once or twice in JSON, Python, HTML, and URLs."""
    code = ord(char)
    yield f"{_BACKSLASHES}{re.escape(char)}"
    hexadecimal = [f"u{code:04x}", rf"u\{{{code:x}\}}", f"U{code:08x}"]
    if code < 256:
        hexadecimal.append(f"x{code:02x}")
    if char in _LETTERS:
        yield _BACKSLASHES + _LETTERS[char]
    yield f"{_BACKSLASHES}(?i:{'|'.join(hexadecimal)})"
    if code > 0xFFFF:
        high, low = 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF)
        yield f"{_BACKSLASHES}(?i:u{high:04x}){_BACKSLASHES}(?i:u{low:04x})"
    entity, percent = _entity(char), _percent(char)
    yield entity
    yield f"{_BACKSLASHES}(?:{entity}|{percent})"
    yield percent
    yield re.escape(char)  # last, as the other forms may begin with it


def _entity(char: str) -> str:
    code = ord(char)
    name = {39: "apos"}.get(code) or codepoint2name.get(code)
    names = f"|{name}" if name else ""
    number = f"(?:#|%(?:25){{0,3}}23)(?:0{{0,6}}{code}|x0{{0,6}}{code:x})"
    return f"{_AMPERSAND}(?:amp{_SEMICOLON}){{0,3}}(?i:{number}{names}){_SEMICOLON}"


def _percent(char: str) -> str:
    codings = [char.encode("utf-8", "surrogatepass")]
    if 127 < ord(char) < 256:
        codings.append(char.encode("latin-1"))
    return "|".join("".join(f"%(?:25){{0,3}}(?i:{byte:02x})" for byte in coding) for coding in codings)


def _base64(data: bytes) -> Iterator[str]:
    """Yield the base64 text of data inside a longer text, for each of the three possible alignments.

    Only the characters that depend on the data alone are included; those at the ends also depend on their neighbors.
    """
    encoded = b64encode(data).decode().rstrip("=")
    if len(encoded) * 6 == len(data) * 8 or len(data) < 5:
        yield encoded
    for before in range(3):
        text = b64encode(bytes(before) + data).decode()
        first, end = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        if end - first >= _MIN_BASE64:
            yield text[first:end]


def _with_line_breaks(text: str) -> Iterator[Form]:
    """Yield the forms of a base64 text in lines of 64 characters or more.

    At most one line break is within its first 64 characters, so one half of these is whole.
    """
    half = min(len(text), _MIN_LINE) // 2
    for part in (text[:half], text[half : 2 * half]):
        needle = max(re.findall("[A-Za-z0-9]+", part), key=len, default="")
        if len(needle) >= _MIN_HALF:
            yield Form(_LINE_BREAK.join(map(_base64_char, text)), needle)


def _base64_char(char: str) -> str:
    if char in "+/":
        return f"(?:{'|'.join(_escapes(char))}|{'-' if char == '+' else '_'})"
    return char
