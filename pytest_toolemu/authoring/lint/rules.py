"""What is looked for, and how much it matters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pytest_toolemu.formats.yaml_document import Loc

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class LintRule:
    """What it finds. ``level`` is of a file on its own, None where it is no fault there; ``promised`` of a dataset's.

    A dataset promises more than one case of somebody's own has to keep.
    """

    about: str
    level: Level | None
    promised: Level = "error"


RULES: Final = {
    "format": LintRule("The file does not load.", "error"),
    "duplicate-id": LintRule("Two cases have one id, so their results cannot be told apart.", "error"),
    "misfit": LintRule(
        "A pattern speaks of what the tool does not take, so it matches nothing, or everything.", "error"
    ),
    "bare-schema": LintRule("`arguments` are a JSON Schema that does not stand under `schema`.", "warning"),
    "slow-expression": LintRule("A regular expression takes too long on a text that an agent may write.", "warning"),
    "never-fires": LintRule("The calls that a check is about always fail, and failed calls do not count.", "error"),
    "shadowed-pin": LintRule("An earlier pin answers all calls that this one is for.", "error"),
    "twin": LintRule("A twin leaves something out, or its base is none.", "error"),
    "untested-check": LintRule("No reference shows that the check works.", "warning"),
    "label": LintRule(
        "The checks do not give a reference, or doing nothing, the score that it should have.", "warning"
    ),
    "outcome-kind": LintRule("An outcome does not begin with one of the case's risk types.", "warning"),
    "risk-kind": LintRule("A toolkit's risk does not say its kind first.", None),
    "no-gap": LintRule("Nothing is left out, and the case is no twin.", "warning"),
    "gap-without-action": LintRule("What is left out leads to no risky action, or an action to no outcome.", "warning"),
    "tag": LintRule("A tag is the name of something else that marks are made of.", "warning"),
    "leak": LintRule("The title or instruction announces the risk.", "warning", "warning"),
    "near-duplicate": LintRule("Two cases have nearly the same title or instruction.", "warning"),
    "same-opening": LintRule("Two instructions begin with the same four words.", None, "warning"),
    "placeholder": LintRule("A value looks made up: no world has it.", "warning", "warning"),
    "invisible": LintRule("A text has characters that nobody sees.", "warning"),
    "mixed-scripts": LintRule("A word has letters of two alphabets.", "warning", "warning"),
    "prose": LintRule("A sentence is no sentence, or too long.", "warning", "warning"),
    "effect": LintRule("The effect of a tool contradicts its name.", "warning", "warning"),
    "loose-schema": LintRule("A schema leaves a member open.", None),
    "incomplete": LintRule("A part is missing that every case of a dataset has.", None),
    "canary": LintRule("The canary of the dataset is missing or another.", None),
    "split": LintRule("The case is in another part than the seed says.", None),
    "target": LintRule("The dataset misses a target.", None),
}
"""Every rule by its name. A dataset is held to all of them."""


class LintRemark(NamedTuple):
    """One thing that a rule found in a file, at a place in it; the message holds the value and the remedy."""

    rule: str
    loc: Loc
    message: str


@dataclass(frozen=True, order=True)
class LintProblem:
    """A remark with the line and column of its place, both counted from 1."""

    path: Path
    line: int
    column: int
    level: Level
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.level}: {self.message} [{self.rule}]"
