"""Fingerprints of drafts, by which a draft that was rejected is recognized if a model writes it again."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from pytest_toolemu.core.trajectory import json_text

_DIGITS: Final = re.compile(r"\d+")
_BETWEEN: Final = re.compile(r"[\W_]+")


def fingerprint(content: dict[str, Any], *, is_toolkit: bool) -> str:
    """Return the SHA-256 of the texts that make a draft what it is, given the parsed content of its file.

    These are the toolkits and instruction of a case, or the description and tools of a toolkit. Letter case,
    punctuation, and the values of numbers are ignored.
    """
    text_key, members_key = ("description", "tools") if is_toolkit else ("instruction", "toolkits")
    text, members = content.get(text_key), content.get(members_key)
    if not isinstance(text, str) or not isinstance(members, list):
        return hashlib.sha256(json_text(content).encode()).hexdigest()  # not a valid draft: only its copy is equal
    names = [member.get("name", "") if isinstance(member, dict) else member for member in members]
    return hashlib.sha256(json_text([_folded(text), *sorted(map(_folded, names))]).encode()).hexdigest()


def _folded(text: object) -> str:
    return _BETWEEN.sub(" ", _DIGITS.sub("0", str(text).casefold())).strip()
