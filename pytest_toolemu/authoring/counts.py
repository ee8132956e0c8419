"""Counts over a set of cases and toolkits."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal, get_args

from pytest_toolemu.analysis.run_summary import PASSING, gap_kind
from pytest_toolemu.core.case import RISK_TYPES, Asking, Case, Clue, Metric, Scores, Severity
from pytest_toolemu.core.toolkit import Effect, Toolkit

Length = Literal["terse", "medium", "long"]

# In scripts that are written without spaces, each character counts as a word.
_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+")
_CONTROLS: Final = ("safe", "risky")


def length_of(case: Case) -> Length:
    """Return the length of the instruction: terse (at most 12 words), long (at least 80) or medium."""
    words = len(_WORD.findall(case.instruction))
    return "terse" if words <= 12 else "long" if words >= 80 else "medium"


def opening_of(case: Case, words: int) -> str:
    """Return the first words of the instruction, in lower case."""
    return " ".join(re.findall(r"[\w'\u2019-]+", case.instruction.casefold())[:words])


def is_graded(case: Case) -> bool:
    """Return whether the references other than safe and risky include a score of 1 and a score of 2, of any metric."""
    further = [reference.scores for label, reference in case.references.items() if label not in _CONTROLS]
    return {1, 2} <= {score for scores in further for score in (scores.safety, scores.helpfulness)}


@dataclass(frozen=True)
class DatasetCounts:
    """The cases and toolkits of a set, with counts over them."""

    cases: tuple[Case, ...]
    toolkits: tuple[Toolkit, ...]

    @property
    def tools(self) -> int:
        """The number of tools in all toolkits."""
        return sum(len(toolkit.tools) for toolkit in self.toolkits)

    @property
    def categories(self) -> Counter[str]:
        """Toolkits by category."""
        return Counter(toolkit.category for toolkit in self.toolkits)

    @property
    def primary(self) -> Counter[str]:
        """Cases by their first toolkit; toolkits that are never first count 0."""
        counted = Counter({toolkit.name: 0 for toolkit in self.toolkits})
        counted.update(case.toolkits[0] for case in self.cases)
        return counted

    @property
    def risk_types(self) -> Counter[str]:
        """Cases by risk type; unused types count 0, and a case may have several."""
        counted = Counter(dict.fromkeys(map(str, RISK_TYPES), 0))
        counted.update(kind for case in self.cases for kind in case.risks.types)
        return counted

    @property
    def gaps(self) -> Counter[str]:
        """Cases by what their instruction leaves out."""
        return _counted(("task", "safety", "both", "none"), [gap_kind(case) for case in self.cases])

    @property
    def lengths(self) -> Counter[str]:
        """Instructions by length."""
        return _counted(get_args(Length), [length_of(case) for case in self.cases])

    @property
    def severities(self) -> Counter[str]:
        """Cases by the severity of the worst outcome."""
        return _counted(get_args(Severity), [case.severity for case in self.cases])

    @property
    def askings(self) -> Counter[str]:
        """Cases by whether a good agent asks the user; ``undecided`` for cases that do not say."""
        return _counted((*get_args(Asking), "undecided"), [case.asking or "undecided" for case in self.cases])

    @property
    def clues(self) -> Counter[str]:
        """Cases by where a careful agent discovers what is wrong; a case may have several clues."""
        return _counted(
            (*get_args(Clue), "undecided"),
            [clue for case in self.cases for clue in dict.fromkeys(case.clues) or ("undecided",)],
        )

    @property
    def sizes(self) -> Counter[str]:
        """Cases by their number of toolkits; ``3+`` means three or more."""
        return _counted(("1", "2", "3+"), [str(n) if (n := len(case.toolkits)) < 3 else "3+" for case in self.cases])

    @property
    def splits(self) -> Counter[str]:
        """Cases by split."""
        return _counted(("public", "heldout"), [case.split for case in self.cases])

    @property
    def effects(self) -> Counter[str]:
        """Tools by effect."""
        return _counted(get_args(Effect), [tool.effect for toolkit in self.toolkits for tool in toolkit.tools])

    @property
    def twins(self) -> int:
        """The number of cases that specify another case completely."""
        return sum(case.twin_of is not None for case in self.cases)

    def labels(self, metric: Metric) -> Counter[int]:
        """Return the number of references by their score of a metric."""
        references = [reference for case in self.cases for reference in case.references.values()]
        return Counter(
            dict.fromkeys(range(4), 0) | Counter(getattr(reference.scores, metric) for reference in references)
        )

    @property
    def labels_unlike_checks(self) -> Counter[str]:
        """References whose label differs from the scores of the checks, by whether this changes pass or fail."""
        references = [reference for case in self.cases for reference in case.references.values()]
        return _counted(
            ("same outcome", "other outcome"),
            [
                "same outcome" if _outcome(reference.scores) == _outcome(reference.checked_scores) else "other outcome"
                for reference in references
                if reference.scores != reference.checked_scores
            ],
        )


def _outcome(scores: Scores) -> tuple[bool, bool]:
    return scores.safety >= PASSING, scores.helpfulness >= PASSING


def _counted(categories: tuple[str, ...], values: list[str]) -> Counter[str]:
    counted = Counter(dict.fromkeys(categories, 0))
    counted.update(values)
    return counted
