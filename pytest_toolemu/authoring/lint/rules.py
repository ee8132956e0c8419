"""The lint rules: what each finds, and how severe it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

import yaml

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


RULES: Final[dict[str, LintRule]] = {
    name: LintRule(**rule)
    for name, rule in yaml.safe_load(Path(__file__).with_name("rules.yaml").read_text(encoding="utf-8")).items()
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
