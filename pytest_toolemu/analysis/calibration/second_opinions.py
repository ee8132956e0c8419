"""Second opinions: labels that others than its authors gave to references of a dataset.

They are in a file next to the dataset's, in the format of ``toolemu label``. ``run`` names a case and its reference,
``trajectory`` is a hash of the reference's calls and answer: when these change, the label no longer applies. A label
without it always applies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_toolemu.analysis.calibration.label_files import Label, read_labels
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_parts.labeled_reference import Reference
from pytest_toolemu.core.dataset import find_dataset
from pytest_toolemu.core.run import sha256

FILE: Final = "second-opinions.csv"
"""The name of the file, in the folder of the dataset's file."""


@dataclass(frozen=True)
class SecondOpinions:
    """The labels of one dataset by case and reference."""

    labels: Mapping[str, Sequence[Label]]

    def of(self, case: Case, name: str) -> tuple[Label, ...]:
        """Return the labels of a reference, without those that were given to other calls or another answer."""
        applicable = ("", reference_hash(case.references[name]))
        return tuple(label for label in self.labels.get(f"{case.id} {name}", ()) if label.trajectory in applicable)

    def include(self, case: Case) -> bool:
        """Return whether a reference of the case has a second opinion."""
        return any(self.of(case, name) for name in case.references)


def second_opinions(folder: Path) -> SecondOpinions:
    """Return the second opinions of the dataset that a folder belongs to; none without a dataset or a file.

    UsageError for a file that is not valid.
    """
    dataset = find_dataset(folder)
    file = dataset.parent / FILE if dataset else None
    by_name: dict[str, list[Label]] = {}
    for label in read_labels([file]) if file and file.is_file() else ():
        by_name.setdefault(label.run, []).append(label)
    return SecondOpinions(by_name)


def reference_hash(reference: Reference) -> str:
    """Return a hash of the calls and the answer of a reference."""
    return sha256([[[call.tool, call.arguments] for call in reference.calls], reference.answer])[:16]
