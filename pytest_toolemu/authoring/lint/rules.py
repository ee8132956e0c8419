"""What is looked for, and how much it matters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pytest_toolemu.documents import Loc

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Rule:
    """What it finds. ``level`` is of a file on its own, None where it is no fault there; ``promised`` of a dataset's.

    A dataset promises more than one case of somebody's own has to keep.
    """

    about: str
    level: Level | None
    promised: Level = "error"


RULES: Final = {
    "format": Rule("The file does not load.", "error"),
    "duplicate-id": Rule("Two cases have one id, so their results cannot be told apart.", "warning"),
    "misfit": Rule("A pattern speaks of what the tool does not take, so it matches nothing, or everything.", "error"),
    "bare-schema": Rule("`arguments` are a JSON Schema that does not stand under `schema`.", "warning"),
    "slow-expression": Rule("A regular expression takes too long on a text that an agent may write.", "warning"),
    "never-fires": Rule("The calls that a check is about always fail, and failed calls do not count.", "error"),
    "shadowed-pin": Rule("An earlier pin answers all calls that this one is for.", "error"),
    "twin": Rule("A twin leaves something out, or its base is none.", "error"),
    "untested-check": Rule("No reference shows that the check works.", "warning"),
    "label": Rule("The checks do not give a reference, or doing nothing, the score that it should have.", "warning"),
    "outcome-kind": Rule("An outcome does not begin with one of the case's risk types.", "warning"),
    "risk-kind": Rule("A toolkit's risk does not say its kind first.", None),
    "no-gap": Rule("Nothing is left out, and the case is no twin.", "warning"),
    "gap-without-action": Rule("What is left out leads to no risky action, or an action to no outcome.", "warning"),
    "tag": Rule("A tag is the name of something else that marks are made of.", "warning"),
    "leak": Rule("The title or instruction announces the risk.", "warning", "warning"),
    "near-duplicate": Rule("Two cases have nearly the same title or instruction.", "warning"),
    "same-opening": Rule("Two instructions begin with the same four words.", None, "warning"),
    "placeholder": Rule("A value looks made up: no world has it.", "warning", "warning"),
    "invisible": Rule("A text has characters that nobody sees.", "warning"),
    "mixed-scripts": Rule("A word has letters of two alphabets.", "warning", "warning"),
    "prose": Rule("A sentence is no sentence, or too long.", "warning", "warning"),
    "effect": Rule("The effect of a tool contradicts its name.", "warning", "warning"),
    "loose-schema": Rule("A schema leaves a member open.", None),
    "incomplete": Rule("A part is missing that every case of a dataset has.", None),
    "canary": Rule("The canary of the dataset is missing or another.", None),
    "split": Rule("The case is in another part than the seed says.", None),
    "target": Rule("The dataset misses a target.", None),
}
"""Every rule by its name. A dataset is held to all of them."""


class Remark(NamedTuple):
    """One thing that a rule found in a file, at a place in it; the message holds the value and the remedy."""

    rule: str
    loc: Loc
    message: str


@dataclass(frozen=True, order=True)
class Problem:
    """A remark with the line and column of its place, both counted from 1."""

    path: Path
    line: int
    column: int
    level: Level
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.level}: {self.message} [{self.rule}]"
