"""Generate text that matches a simple regular expression."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable
from random import Random
from typing import Final

Part = Callable[[], str]

_CLASSES: Final = {
    "d": string.digits,
    "w": string.ascii_letters + string.digits + "_",
    "s": " ",
    "D": string.ascii_letters,
    "W": "-",
    "S": string.ascii_letters + string.digits,
}
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r"}
_ORDINARY: Final = string.ascii_letters + string.digits + " -_.,:/#+"
_REPEAT: Final = re.compile(r"(?:\{(\d+)(,?)(\d*)\}|([*+?]))\??")
_LONGEST: Final = 20_000
_SIGNS: Final = {"*": (0, math.inf), "+": (1, math.inf), "?": (0, 1)}


class RegexGenerator:
    """Generates matches of a regular expression with literals, classes, groups, alternatives and repetition.

    ValueError for other constructs. Anchors are ignored, as every match covers the whole text. An unbounded repetition
    is repeated so that the text has about ``least`` characters.
    """

    def __init__(self, pattern: str, random: Random, least: int = 0) -> None:
        self._text, self._at = pattern, 0
        self._random, self._least = random, least
        self._part = self._alternatives()
        if self._at < len(pattern):
            raise ValueError(f"unbalanced parenthesis in {pattern!r}")

    def __call__(self) -> str:
        """Generate one text."""
        return self._part()

    def _alternatives(self) -> Part:
        options = [self._sequence()]
        while self._next("|"):
            options.append(self._sequence())

        def chosen() -> str:
            return self._random.choice(options)()

        return chosen

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return lambda: "".join(part() for part in parts)

    def _atom(self) -> Part:
        if self._next("("):
            if self._next("?") and not self._next(":"):
                raise ValueError(f"a look-around or named group in {self._text!r}")
            inner = self._alternatives()
            self._take()
            return inner
        if self._next("["):
            chars = self._charset()
        elif self._next("\\"):
            chars = self._escape()
        else:
            char = self._take()
            chars = {"^": "", "$": "", ".": _ORDINARY}.get(char, char)
        return lambda: self._random.choice(chars) if chars else ""

    def _repeated(self, part: Part) -> Part:
        match = _REPEAT.match(self._text, self._at)
        if match is None:
            return part
        self._at = match.end()
        first, comma, last, sign = match.groups()
        low, high = _SIGNS[sign] if sign else (int(first), int(last) if last else math.inf if comma else int(first))
        if low > _LONGEST:
            raise ValueError(f"over {_LONGEST} repetitions in {self._text!r}")
        most = int(min(high, low + max(3, self._least)))
        least = min(most, max(low, self._least)) if most > 1 else low
        return lambda: "".join(part() for _ in range(self._random.randint(least, most)))

    def _charset(self) -> str:
        negated, chars = self._next("^"), ""
        while not self._next("]"):
            start = self._member()
            if (
                len(start) == 1
                and self._text.startswith("-", self._at)
                and self._text[self._at + 1 : self._at + 2] != "]"
            ):
                self._take()
                chars += "".join(chr(code) for code in range(ord(start), ord(self._member()[0]) + 1))
            else:
                chars += start
        return "".join(char for char in _ORDINARY if char not in chars) if negated else chars

    def _member(self) -> str:
        return self._escape() if self._next("\\") else self._take()

    def _escape(self) -> str:
        char = self._take()
        if char in "bBAZ":
            return ""
        if char.isalnum() and char not in _CLASSES and char not in _CONTROLS:
            raise ValueError(f"\\{char} in {self._text!r}")
        return _CLASSES.get(char) or _CONTROLS.get(char, char)

    def _next(self, char: str) -> bool:
        is_next = self._text.startswith(char, self._at)
        self._at += is_next
        return is_next

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise ValueError(f"{self._text!r} ends too early")
        self._at += 1
        return self._text[self._at - 1]
