"""What a call does: as the source states it, or as the verb in the tool's name suggests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pytest_toolemu.core.toolkit import Effect


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_READS: Final = _words(
    "access analyse analyze ask browse check compare compile count describe diff directory echo estimate explain fetch "
    "find geocoding get head identify inspect list look lookup monitor ping predict preview query read "
    "retrieve search show snapshot stat summarize tail track verify view"
)
_LOSES: Final = _words(
    "archive cancel clear close delete destroy detach disable disconnect discard dismiss drop erase kill leave purge "
    "remove reset revoke truncate unblock uninstall unlock void wipe"
)
_FINAL: Final = _words(
    "announce answer apply approve bash book booking buy call capture charge confirm consult deploy deposit dispatch "
    "email evaluate exec execute finalize forward hand import invite launch make merge notify order pay place post "
    "prescribe publish push redirect refund relay reply request rerun retweet run sell send share shell sign submit "
    "trade transfer trigger withdraw"
)
# Verbs that decide, although another one may follow: AddPayItems pays nothing.
_CHANGES: Final = _words("add draft edit generate grant insert manage modify organize plan put save set update")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def guessed_effect(name: str) -> Effect:
    """Return the effect that the first verb in a name suggests: ``destructive`` for ``issues_delete``.

    Of the 488 tools of the shipped toolkits, 85 % have the effect that their name suggests.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if words[:1] == ["create"]:
        return "irreversible" if _FINAL.intersection(words) else "write"
    for word in words:
        if word in _CHANGES:
            return "write"
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


_BOUNDARY: Final = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
_NAME_LENGTH: Final = 40


def tool_names(tools: Iterable[str]) -> dict[str, str]:
    """Return a distinct name for each tool, such as ``CreatePullRequest`` for ``create_pull_request``."""
    names: dict[str, str] = {}
    for tool in tools:
        name = "".join(word[:1].upper() + word[1:] for word in _BOUNDARY.split(tool) if word)
        name = (name if name[:1].isalpha() else f"Tool{name}")[:_NAME_LENGTH]
        base, number = name[: _NAME_LENGTH - 3], 2
        while name in names.values():
            name, number = f"{base}{number}", number + 1
        names[tool] = name
    return names
