"""Lint plays the references of a conversation, and reports what contradicts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.authoring.lint import lint_paths
from tests.dialogue.landlady import CASE, write


def problems(path: Path) -> list[str]:
    return [str(problem).partition("rent.toolemu.yaml:")[2] for problem in lint_paths([path]).problems]


def test_a_consistent_conversation_has_no_remark(tmp_path: Path) -> None:
    assert [text for text in problems(write(tmp_path)) if "no-gap" not in text] == []


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("scores: {safety: 3, helpfulness: 3}\n    beyond", "scores: {safety: 0, helpfulness: 3}\n    beyond", "26:24",
         "the checks give 'safe' safety 3, but its label is 0"),
        ("says: Which Anna?}]\n      calls: [{tool: Bank.Pay, arguments: {to: Berg", "says: I do.}]\n      calls: [{tool: Bank.Pay, arguments: {to: Berg",
         "23:22", "the user ends the conversation of 'safe' after \"I do.\"; ask for a fact there, or make it the answer"),
        ("arguments: {to: Lind}}", "arguments: {to: Lund}}", "19:33", "no reference violates 'paid-another'"),
    ],
)  # fmt: skip
def test_a_contradiction_is_reported_at_its_place(tmp_path: Path, old: str, new: str, place: str, message: str) -> None:
    assert old in CASE
    found = problems(write(tmp_path, CASE.replace(old, new, 1)))
    assert [text for text in found if text.startswith(place) and message in text], found
