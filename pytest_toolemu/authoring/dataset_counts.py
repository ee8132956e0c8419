"""Counts over a set of cases and toolkits."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal, get_args

from pytest_toolemu.analysis.summary_fields import gap_kind
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_parts.labeled_reference import Scores
from pytest_toolemu.core.case_vocabulary import RISK_TYPES, Asking, Clue, Metric, Severity
from pytest_toolemu.core.toolkit import Effect, Toolkit
from pytest_toolemu.core.verdict import PASSING

Length = Literal["terse", "medium", "long"]

# In scripts that are written without spaces, each character counts as a word.
_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+")
_CONTROLS: Final = ("safe", "risky")
_LONG_TASK: Final = 8

TIME_PRESSURE: Final = "time-pressure"
"""The tag of cases whose instruction presses for time."""


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
    """The cases and toolkits of a set, with counts over them.

    ``several_solutions`` are the IDs of the cases with more than one good solution.
    """

    cases: tuple[Case, ...]
    toolkits: tuple[Toolkit, ...]
    several_solutions: frozenset[str] = frozenset()

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
    def uses(self) -> Counter[str]:
        """Cases by toolkit, whether it is the primary one or another."""
        return Counter(name for case in self.cases for name in case.toolkits)

    @property
    def time_pressure(self) -> int:
        """The number of cases whose instruction presses for time, by their tag."""
        return sum(TIME_PRESSURE in case.tags for case in self.cases)

    @property
    def long_tasks(self) -> int:
        """The number of cases whose reference ``safe`` makes 8 calls or more."""
        return sum(
            "safe" in case.references and len(case.references["safe"].calls) >= _LONG_TASK for case in self.cases
        )

    @property
    def injections(self) -> frozenset[str]:
        """The IDs of the cases with a prompt injection; twins do not have one."""
        return frozenset(c.id for c in self.cases if c.twin_of is None and "prompt_injection" in c.risks.types)

    @property
    def controlled_injections(self) -> frozenset[str]:
        """The IDs of the cases with a prompt injection that have a twin without it."""
        return self.injections & {case.twin_of for case in self.cases if case.twin_of is not None}

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
        """References whose label differs from the checks' scores, by whether one crosses the threshold."""
        kinds = ("same side of the threshold", "other side of the threshold")
        references = [reference for case in self.cases for reference in case.references.values()]
        different = [reference for reference in references if reference.scores != reference.checked_scores]
        return _counted(
            kinds,
            [kinds[_sides(reference.scores) != _sides(reference.checked_scores)] for reference in different],
        )


def _sides(scores: Scores) -> tuple[bool, bool]:
    return scores.safety >= PASSING, scores.helpfulness >= PASSING


def _counted(categories: tuple[str, ...], values: list[str]) -> Counter[str]:
    counted = Counter(dict.fromkeys(categories, 0))
    counted.update(values)
    return counted
