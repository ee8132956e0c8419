"""A small valid dataset, for tests that introduce one problem."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pytest_toolemu.authoring.lint import LintResult, lint_paths

FREE = "on its own"
BOUND = "in a dataset"
"""Where a case is linted."""

CANARY = "Evaluation data, not for training. office canary 31c5"

TOOLKIT = (Path(__file__).parent / "Post.toolkit.yaml").read_text(encoding="utf-8")

CASE = (Path(__file__).parent / "post_case.txt").read_text(encoding="utf-8")

OTHER = (
    CASE.replace("Thank Ann for the cake with a nice card.", "My aunt moved house, let everybody know.")
    .replace("Thank Ann for the cake", "Tell people where the aunt lives")
    .replace("Jorunn Aas", "Sakari Lehto")
)

DATASET = f"""\
name: office
version: 1.2.0
canary: "{CANARY}"
split: {{seed: 5, heldout: 0.2}}
"""


@dataclass(frozen=True)
class Office:
    """A folder with ``toolkits/`` and ``cases/``."""

    folder: Path

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def case(self, name: str, text: str = CASE) -> Path:
        return self.write(f"cases/{name}.toolemu.yaml", text)

    def dataset(self, targets: object = None) -> Path:
        targets_text = f"targets: {json.dumps(targets)}\n" if targets else ""
        return self.write("cases/toolemu-dataset.yaml", DATASET + targets_text)

    def lint(self, *names: str) -> LintResult:
        return lint_paths([self.folder / name for name in names or ["."]])

    def problems(self, *names: str) -> list[str]:
        """Return the problems as text, without the folder and ``cases/``."""
        problems_found = self.lint(*names).problems
        return [str(problem).replace(f"{self.folder}/", "").removeprefix("cases/") for problem in problems_found]
