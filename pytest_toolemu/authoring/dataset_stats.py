"""Counts over a set of cases and toolkits, their tables, and the agreement of second opinions on references."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar, get_args

from pytest_toolemu.analysis.calibration.labels import Label, SecondOpinions, second_opinions
from pytest_toolemu.analysis.metrics import format_interval
from pytest_toolemu.analysis.run_summary import gap_kind
from pytest_toolemu.analysis.statistics.agreement import alpha_estimate
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.authoring.find_files import find
from pytest_toolemu.authoring.play_references import has_several_solutions
from pytest_toolemu.authoring.starter import rendered
from pytest_toolemu.core.case import Case, Edition, edition, find_dataset
from pytest_toolemu.core.case_loading import load_case, load_toolkit
from pytest_toolemu.core.case_rules import Reference, Scores
from pytest_toolemu.core.case_vocabulary import METRICS, RISK_TYPES, Asking, Clue, Metric, Severity
from pytest_toolemu.core.run import PASSING
from pytest_toolemu.core.toolkit import Effect, Tool, Toolkit, benchmark_folder
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import visible

Length = Literal["terse", "medium", "long"]

# In scripts that are written without spaces, each character counts as a word.
_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+")
_CONTROLS: Final = ("safe", "risky")
_LONG_TASK: Final = 8

TIME_PRESSURE: Final = "time-pressure"
"""The tag of cases whose instruction presses for time."""

_SHOWN: Final = 12

_T = TypeVar("_T")


@dataclass(frozen=True)
class Table:
    """Counts under a title; the first column names what is counted.

    ``total`` is the number of items for shares of the first count; 0 if shares make no sense.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, int, *tuple[int, ...]], ...]
    total: int = 0

    def share(self, count: int) -> str:
        """Return a count as a percentage of the total; empty without a total."""
        return f"{count / self.total:.0%}" if self.total else ""


@dataclass(frozen=True)
class DoublyLabeled:
    """A reference with the label of its author and second opinions, by annotator."""

    case: str
    name: str
    labels: dict[str, Label]

    def sides(self, metric: Metric) -> set[bool]:
        """Return on which sides of the threshold the labels are."""
        scores = [label.score(metric) for label in self.labels.values()]
        return {score >= PASSING for score in scores if score is not None}


@dataclass(frozen=True)
class AnnotatorPair:
    """The agreement of two annotators on one metric; ``same_side`` counts labels on the same side of the threshold."""

    first: str
    second: str
    metric: Metric
    labels: int
    same_side: int
    alpha: Estimate | None


@dataclass(frozen=True)
class SecondOpinionSummary:
    """All references with second opinions, the agreement of each two annotators, and the disagreements."""

    references: tuple[DoublyLabeled, ...]

    @property
    def pairs(self) -> list[AnnotatorPair]:
        """The agreement of each two annotators on each metric."""
        pairs = itertools.product(itertools.combinations(self.annotators, 2), METRICS)
        return [_pair(self.references, first, second, metric) for (first, second), metric in pairs]

    @property
    def annotators(self) -> list[str]:
        """The names of all annotators, in the order in which they occur."""
        return list(dict.fromkeys(name for each in self.references for name in each.labels))

    @property
    def disagreements(self) -> tuple[DoublyLabeled, ...]:
        """The references for which labels of a metric are on both sides of the threshold."""
        return tuple(each for each in self.references if any(len(each.sides(metric)) > 1 for metric in METRICS))


@dataclass(frozen=True)
class Stats:
    """All tables of a set, the dataset editions of its cases, and the number of cases ``outside`` of any dataset.

    ``opinions`` compares the second opinions on references with the labels of their authors.
    """

    editions: tuple[Edition, ...]
    outside: int
    tables: tuple[Table, ...]
    opinions: SecondOpinionSummary


def stats(paths: Iterable[Path]) -> Stats:
    """Return the statistics of the files below the paths, and of all toolkits that their cases use.

    Raise DocumentError if a file is not valid, and UsageError if there is no case.
    """
    paths = list(paths)
    files = find(paths)
    if not files.cases:
        where = ", ".join(map(str, paths))
        raise UsageError(
            f"{where}: there are no cases; name a folder with cases, such as the shipped ones in {benchmark_folder()}"
        )
    resolved_cases = [load_case(path) for path in files.cases]
    toolkits = {kit.name: kit for kit in map(load_toolkit, files.toolkits)}
    toolkits = {kit.name: kit for resolved_case in resolved_cases for kit in resolved_case.toolkits} | toolkits
    datasets = Counter(find_dataset(path.parent) for path in files.cases)
    outside = datasets.pop(None, 0)

    async def several_solutions() -> frozenset[str]:
        return frozenset([one.case.id for one in resolved_cases if await has_several_solutions(one)])

    cases = tuple(resolved_case.case for resolved_case in resolved_cases)
    counts = DatasetCounts(cases, tuple(toolkits[name] for name in sorted(toolkits)), asyncio.run(several_solutions()))
    by_folder = {each.path.parent: second_opinions(each.path.parent) for each in resolved_cases}
    labels = {run: given for opinions in by_folder.values() for run, given in opinions.labels.items()}
    return Stats(
        tuple(edition(path) for path in sorted(filter(None, datasets))),
        outside,
        tables(counts),
        summarize(counts.cases, SecondOpinions(labels)),
    )


def tables(counts: DatasetCounts) -> tuple[Table, ...]:
    """Return all distributions, the most important ones first."""
    safety, helpfulness = counts.labels("safety"), counts.labels("helpfulness")
    clues = [clue for case in counts.cases for clue in dict.fromkeys(case.clues) or ("undecided",)]
    different = [each for each in counts.references if each.scores != each.checked_scores]
    sides = ("same side of the threshold", "other side of the threshold")
    unlike_checks = [sides[_sides(each.scores) != _sides(each.checked_scores)] for each in different]
    locales = Counter(case.locale for case in counts.cases)
    shown = dict(locales.most_common(_SHOWN))
    if others := locales.total() - sum(shown.values()):
        shown[f"{len(locales) - _SHOWN} others"] = others
    cases = counts.cases
    numbers = {
        "toolkits": len(counts.toolkits),
        "tools": len(counts.tools),
        "categories": len(counts.categories),
        "cases": len(cases),
        "twins": counts.twins,
        "references": len(counts.references),
        "users": len({case.user.name for case in cases}),
        "locales": len(locales),
        "years": len({case.now.year for case in cases}),
    }
    toolkit, uses = max(counts.uses.items(), key=lambda item: item[1])
    balance = {  # what a balanced dataset keeps within limits; the shares are of all cases
        "mild worst outcome": counts.severities["mild"],
        "time pressure": counts.time_pressure,
        f"most used toolkit ({toolkit})": uses,
        "more than one good solution": len(counts.several_solutions),
        "long task (8 calls or more)": counts.long_tasks,
        "prompt injection": len(counts.injections),
        "prompt injection with a control": len(counts.controlled_injections),
    }
    kits: defaultdict[str, list[Toolkit]] = defaultdict(list)
    for kit in counts.toolkits:
        kits[kit.category].append(kit)
    # Cases count for the category of their first toolkit.
    categories = [
        (name, sum(counts.primary[kit.name] for kit in each), len(each), sum(len(kit.tools) for kit in each))
        for name, each in sorted(kits.items())
    ]
    return (
        _count_table("In all", "number", numbers, 0),
        _count_table("Risk types", "cases", counts.risk_types, len(cases)),
        Table("Categories", ("", "cases", "toolkits", "tools"), tuple(categories)),
        _count_table("Toolkits per case", "cases", counts.sizes),
        _count_table("Left out", "cases", counts.gaps),
        _count_table("Balance", "cases", balance, len(cases)),
        _count_table("Severity of the worst outcome", "cases", counts.severities),
        _count_table(
            "Asking the user",
            "cases",
            _counted((*get_args(Asking), "undecided"), [case.asking or "undecided" for case in counts.cases]),
        ),
        _count_table("Clues", "cases", _counted((*get_args(Clue), "undecided"), clues), len(cases)),
        _count_table("Splits", "cases", _counted(("public", "heldout"), [case.split for case in counts.cases])),
        _count_table("Length of instructions", "cases", counts.lengths),
        _count_table("Effects of tools", "tools", _counted(get_args(Effect), [tool.effect for tool in counts.tools])),
        Table(
            "Scores of references",
            ("score", "safety", "helpfulness"),
            tuple((str(score), safety[score], helpfulness[score]) for score in range(4)),
        ),
        _count_table("Labels unlike the checks", "references", _counted(sides, unlike_checks), 0),
        _count_table("Locales", "cases", shown),
    )


def _count_table(title: str, unit: str, counts: Mapping[str, int], total: int | None = None) -> Table:
    return Table(title, ("", unit), tuple(counts.items()), sum(counts.values()) if total is None else total)


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
    def tools(self) -> list[Tool]:
        """The tools of all toolkits."""
        return [tool for toolkit in self.toolkits for tool in toolkit.tools]

    @property
    def references(self) -> list[Reference]:
        """The references of all cases."""
        return [reference for case in self.cases for reference in case.references.values()]

    @property
    def categories(self) -> Counter[str]:
        """Toolkits by category."""
        return Counter(toolkit.category for toolkit in self.toolkits)

    @property
    def primary(self) -> Counter[str]:
        """Cases by their first toolkit; toolkits that are never first count 0."""
        return _counted([toolkit.name for toolkit in self.toolkits], [case.toolkits[0] for case in self.cases])

    @property
    def risk_types(self) -> Counter[str]:
        """Cases by risk type; unused types count 0, and a case may have several."""
        return _counted(list(map(str, RISK_TYPES)), [kind for case in self.cases for kind in case.risks.types])

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
    def twins(self) -> int:
        """The number of cases that specify another case completely."""
        return sum(case.twin_of is not None for case in self.cases)

    def labels(self, metric: Metric) -> Counter[int]:
        """Return the number of references by their score of a metric."""
        return _counted(range(4), [getattr(reference.scores, metric) for reference in self.references])


def _sides(scores: Scores) -> tuple[bool, bool]:
    return scores.safety >= PASSING, scores.helpfulness >= PASSING


def _counted(categories: Iterable[_T], values: Iterable[_T]) -> Counter[_T]:
    counted = Counter(dict.fromkeys(categories, 0))
    counted.update(values)
    return counted


def summarize(cases: Iterable[Case], opinions: SecondOpinions) -> SecondOpinionSummary:
    """Compare the labels of all references that have second opinions."""
    references = tuple(
        DoublyLabeled(case.id, name, {each.annotator: each for each in (author, *others)})
        for case in cases
        for name, reference in case.references.items()
        if (others := opinions.of(case, name))
        for author in (Label(annotator="author", **reference.scores.model_dump()),)
    )
    return SecondOpinionSummary(references)


def _pair(references: Iterable[DoublyLabeled], first: str, second: str, metric: Metric) -> AnnotatorPair:
    units, cases = [], []
    for each in references:
        scores = [each.labels[name].score(metric) for name in (first, second) if name in each.labels]
        given = [score for score in scores if score is not None]
        if len(given) == 2:
            units.append(given)
            cases.append(each.case)
    same_side = sum((one >= PASSING) == (other >= PASSING) for one, other in units)
    return AnnotatorPair(first, second, metric, len(units), same_side, alpha_estimate(units, clusters=cases))


def as_markdown(stats: Stats) -> str:
    """Return a Markdown table with one row for each distribution, and tables of second opinions if there are any.

    It omits the hashes of datasets, because they change with every file and would soon be out of date in a document.
    """
    return rendered("stats.md.j2", stats=stats, visible=visible, interval=format_interval)
