"""Tables of the distributions in a set of cases and toolkits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_toolemu.analysis.calibration.second_opinions import SecondOpinions, second_opinions
from pytest_toolemu.authoring.dataset_counts import DatasetCounts
from pytest_toolemu.authoring.find_files import find
from pytest_toolemu.authoring.good_solutions import has_several_solutions
from pytest_toolemu.authoring.second_opinion_summary import SecondOpinionSummary, summarize
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.dataset import Edition, edition, find_dataset, origin
from pytest_toolemu.core.toolkit import benchmark_folder
from pytest_toolemu.core.toolkit_files import load_toolkit
from pytest_toolemu.errors import UsageError

_SHOWN: Final = 12


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
class Stats:
    """All tables of a set, the dataset editions of its cases, and the number of cases ``outside`` of any dataset.

    ``opinions`` compares the second opinions on references with the labels of their authors.
    """

    editions: tuple[Edition, ...]
    outside: int
    tables: tuple[Table, ...]
    opinions: SecondOpinionSummary

    @property
    def origin(self) -> str:
        """The editions, and the number of cases without one, as text."""
        return origin(self.editions, self.outside)


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
    counts = DatasetCounts(
        tuple(resolved_case.case for resolved_case in resolved_cases),
        tuple(toolkits[name] for name in sorted(toolkits)),
        asyncio.run(_several_solutions(resolved_cases)),
    )
    by_folder = {each.path.parent: second_opinions(each.path.parent) for each in resolved_cases}
    labels = {run: given for opinions in by_folder.values() for run, given in opinions.labels.items()}
    return Stats(
        tuple(edition(path) for path in sorted(filter(None, datasets))),
        outside,
        tables(counts),
        summarize(counts.cases, SecondOpinions(labels)),
    )


async def _several_solutions(resolved_cases: Iterable[ResolvedCase]) -> frozenset[str]:
    return frozenset([one.case.id for one in resolved_cases if await has_several_solutions(one)])


def tables(counts: DatasetCounts) -> tuple[Table, ...]:
    """Return all distributions, the most important ones first."""
    safety, helpfulness = counts.labels("safety"), counts.labels("helpfulness")
    return (
        _overview(counts),
        _counted("Risk types", "cases", counts.risk_types, len(counts.cases)),
        _categories(counts),
        _counted("Toolkits per case", "cases", counts.sizes),
        _counted("Left out", "cases", counts.gaps),
        _balance(counts),
        _counted("Severity of the worst outcome", "cases", counts.severities),
        _counted("Asking the user", "cases", counts.askings),
        _counted("Clues", "cases", counts.clues, len(counts.cases)),
        _counted("Splits", "cases", counts.splits),
        _counted("Length of instructions", "cases", counts.lengths),
        _counted("Effects of tools", "tools", counts.effects),
        Table(
            "Scores of references",
            ("score", "safety", "helpfulness"),
            tuple((str(score), safety[score], helpfulness[score]) for score in range(4)),
        ),
        Table("Labels unlike the checks", ("", "references"), tuple(counts.labels_unlike_checks.items())),
        _counted("Locales", "cases", _most_common(Counter(case.locale for case in counts.cases))),
    )


def _overview(counts: DatasetCounts) -> Table:
    cases = counts.cases
    rows = (
        ("toolkits", len(counts.toolkits)),
        ("tools", counts.tools),
        ("categories", len(counts.categories)),
        ("cases", len(cases)),
        ("twins", counts.twins),
        ("references", sum(len(case.references) for case in cases)),
        ("users", len({case.user.name for case in cases})),
        ("locales", len({case.locale for case in cases})),
        ("years", len({case.now.year for case in cases})),
    )
    return Table("In all", ("", "number"), rows)


def _balance(counts: DatasetCounts) -> Table:
    """Return a table of what a balanced dataset keeps within limits; the shares are of all cases."""
    toolkit, uses = max(counts.uses.items(), key=lambda item: item[1])
    balance = {
        "mild worst outcome": counts.severities["mild"],
        "time pressure": counts.time_pressure,
        f"most used toolkit ({toolkit})": uses,
        "more than one good solution": len(counts.several_solutions),
        "long task (8 calls or more)": counts.long_tasks,
        "prompt injection": len(counts.injections),
        "prompt injection with a control": len(counts.controlled_injections),
    }
    return _counted("Balance", "cases", balance, len(counts.cases))


def _categories(counts: DatasetCounts) -> Table:
    """Return a table of cases by the category of their first toolkit."""
    primary, rows = counts.primary, []
    for category, toolkits in sorted(counts.categories.items()):
        kits = [kit for kit in counts.toolkits if kit.category == category]
        rows.append((category, sum(primary[kit.name] for kit in kits), toolkits, sum(len(kit.tools) for kit in kits)))
    return Table("Categories", ("", "cases", "toolkits", "tools"), tuple(rows))


def _most_common(values: Counter[str]) -> dict[str, int]:
    first = dict(values.most_common(_SHOWN))
    others = values.total() - sum(first.values())
    return first | ({f"{len(values) - _SHOWN} others": others} if others else {})


def _counted(title: str, unit: str, counts: Mapping[str, int], total: int | None = None) -> Table:
    return Table(title, ("", unit), tuple(counts.items()), sum(counts.values()) if total is None else total)
