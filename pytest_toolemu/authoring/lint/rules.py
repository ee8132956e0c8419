"""The lint rules: what each finds, and how severe it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pytest_toolemu.formats.yaml_document import Loc

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class LintRule:
    """What a rule finds, as a sentence, and its level.

    ``level`` applies to files outside of a dataset; None means that the rule does not apply to them. ``dataset_level``
    applies to the files of a dataset, which others rely on, so it is often stricter.
    """

    description: str
    level: Level | None
    dataset_level: Level = "error"


RULES: Final = {
    "format": LintRule("The file is not valid.", "error"),
    "duplicate-id": LintRule("Two cases have the same ID, so their results cannot be told apart.", "error"),
    "misfit": LintRule(
        "A pattern names arguments or values that the tool does not take, so it matches nothing, or everything.",
        "error",
    ),
    "operation": LintRule("A declared operation fails, or returns what its tool does not declare.", "error"),
    "redundant-pin": LintRule("A pin gives the same result as the rows.", "warning", "warning"),
    "pinned-change": LintRule(
        "A pin answers a call that would change rows, so its effect is lost.", "warning", "warning"
    ),
    "slow-expression": LintRule("A regular expression takes too long on text that an agent can write.", "warning"),
    "never-fires": LintRule("The calls that a check matches always fail, and failed calls do not count.", "error"),
    "shadowed-pin": LintRule("An earlier pin answers all calls that this pin matches.", "error"),
    "twin": LintRule("A twin leaves something out, or its base is missing or not valid.", "error"),
    "variant": LintRule("The case of which this one is a variant is missing, or is a variant itself.", None),
    "untested-check": LintRule("No reference shows that the check works.", "warning"),
    "label": LintRule(
        "The checks give a reference, or an agent that does nothing, a score that it should not have.", "warning"
    ),
    "asking": LintRule("The labels of references contradict what the case says about asking the user.", "warning"),
    "empty-claim": LintRule("An agent that claims a change without making it passes.", "warning"),
    "unlabeled": LintRule("An imported trajectory has no label yet.", "warning"),
    "proof": LintRule(
        "A careful read does not show its texts, an agent cannot make it, or all changes of an unsafe reference fail.",
        "error",
    ),
    "outcome-kind": LintRule("An outcome does not begin with one of the case's risk types.", "warning"),
    "risk-kind": LintRule("A risk of a toolkit does not begin with its kind.", None),
    "no-gap": LintRule("The case leaves nothing out, and is not a twin.", "warning"),
    "gap-without-action": LintRule("A gap leads to no risky action, or a risky action leads to no outcome.", "warning"),
    "tag": LintRule("A tag equals a risk type, severity, toolkit, or split, which are also pytest marks.", "warning"),
    "leak": LintRule("The title or instruction reveals the risk.", "warning", "warning"),
    "near-duplicate": LintRule("Two cases have nearly the same title or instruction.", "warning"),
    "same-opening": LintRule("Two instructions begin with the same four words.", None, "warning"),
    "placeholder": LintRule("A value looks like a placeholder.", "warning", "warning"),
    "invisible": LintRule("A text contains invisible characters.", "warning"),
    "mixed-scripts": LintRule("A word mixes letters of two alphabets.", "warning", "warning"),
    "prose": LintRule("A text is not a complete sentence, or is too long.", "warning", "warning"),
    "effect": LintRule("The effect of a tool contradicts its name.", "warning", "warning"),
    "inferred": LintRule(
        "A part of a tool was guessed by an import or a model, and nobody has confirmed it.", "warning", "warning"
    ),
    "loose-schema": LintRule("A schema does not specify a member completely.", None),
    "incomplete": LintRule("A part that every case of a dataset needs is missing.", None),
    "canary": LintRule("The canary is missing or differs from the dataset's.", None),
    "split": LintRule("The split of the case differs from the one that the dataset's seed gives.", None),
    "target": LintRule("The dataset misses a target.", None),
}
"""All rules by name. All of them apply to the files of a dataset."""


class LintRemark(NamedTuple):
    """A finding of a rule at a location in a file; the message contains the value and the fix."""

    rule: str
    loc: Loc
    message: str


@dataclass(frozen=True, order=True)
class LintProblem:
    """A remark with its line and column, both counted from 1."""

    path: Path
    line: int
    column: int
    level: Level
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.level}: {self.message} [{self.rule}]"
