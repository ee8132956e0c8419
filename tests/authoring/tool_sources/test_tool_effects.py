"""The effect of a tool: stated by annotations or methods, or guessed by its verb."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_toolemu.authoring.importers.published_tools import annotated_effect, guessed_effect, method_effect


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("list_issues", "read"),
        ("getUserByID", "read"),
        ("repos/delete", "destructive"),
        ("issue_write", "write"),
        ("send-email", "irreversible"),
        ("Bash", "irreversible"),
        ("SearchEmails", "read"),
        ("CreateNote", "write"),
        ("AddPayItems", "write"),
        ("TransferFunds", "irreversible"),
        ("", "write"),
    ],
)
def test_the_first_verb_of_a_name_decides(name: str, effect: str) -> None:
    assert guessed_effect(name) == effect


@pytest.mark.parametrize(
    ("name", "annotations", "expected"),
    [
        ("delete_all", {"readOnlyHint": True}, ("read", True)),
        ("move", {"destructiveHint": True}, ("destructive", True)),
        ("send", {"destructiveHint": True}, ("irreversible", False)),
        ("create", {}, ("write", False)),
        ("get", {"readOnlyHint": False}, ("write", False)),
        ("clear", {"destructiveHint": False}, ("write", False)),
        ("clear", {"destructiveHint": "yes"}, ("destructive", False)),
    ],
)
def test_annotations_state_an_effect_only_if_they_are_there(
    name: str, annotations: dict[str, Any], expected: tuple[str, bool]
) -> None:
    assert annotated_effect(name, annotations) == expected


@pytest.mark.parametrize(
    ("method", "name", "expected"),
    [
        ("get", "sendAll", ("read", True)),
        ("delete", "x", ("destructive", True)),
        ("post", "search", ("write", False)),
        ("post", "pulls/merge", ("irreversible", False)),
    ],
)
def test_methods_state_an_effect(method: str, name: str, expected: tuple[str, bool]) -> None:
    assert method_effect(method, name) == expected
