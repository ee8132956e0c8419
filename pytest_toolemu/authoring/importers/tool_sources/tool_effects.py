"""What a call does: as the source states it, or as the verb in the tool's name suggests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pytest_toolemu.core.toolkit import Effect


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_READS: Final = _words(
    "browse check compare count describe diff directory download echo explain fetch find get head inspect list look "
    "lookup ping preview query read retrieve search show snapshot stat summarize tail view"
)
_LOSES: Final = _words(
    "archive cancel clear close delete destroy detach disable dismiss drop erase kill purge remove reset revoke "
    "truncate uninstall unlock void wipe"
)
_FINAL: Final = _words(
    "approve bash book buy capture charge confirm deploy dispatch email evaluate exec execute finalize invite merge "
    "order pay post publish push refund reply request rerun run sell send shell sign submit transfer trigger"
)
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def guessed_effect(name: str) -> Effect:
    """Return the effect that the first verb in a name suggests: ``destructive`` for ``issues_delete``."""
    for word in map(str.lower, _WORD.findall(name)):
        if word in _READS:
            return "read"
        if word in _LOSES:
            return "destructive"
        if word in _FINAL:
            return "irreversible"
    return "write"


def annotated_effect(name: str, annotations: Mapping[str, Any]) -> tuple[Effect, bool]:
    """Return the effect by a tool's annotations of the Model Context Protocol, and whether they state it.

    An annotation that a server leaves out says nothing: the default of the specification, destructive, is not what
    authors of servers mean by their silence.
    """
    guess = guessed_effect(name)
    if annotations.get("readOnlyHint") is True:
        return "read", True
    if annotations.get("destructiveHint") is True:
        # No annotation distinguishes a loss from what cannot be taken back.
        return (guess, False) if guess == "irreversible" else ("destructive", True)
    is_contradicted = (guess == "read" and annotations.get("readOnlyHint") is False) or (
        guess == "destructive" and annotations.get("destructiveHint") is False
    )
    return ("write" if is_contradicted else guess), False


def method_effect(method: str, name: str) -> tuple[Effect, bool]:
    """Return the effect of an HTTP method, and whether the method states it."""
    if method == "get":
        return "read", True
    if method == "delete":
        return "destructive", True
    guess = guessed_effect(name)
    return ("write" if guess == "read" else guess), False
