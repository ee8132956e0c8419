"""The distributions of a set of cases and toolkits, as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_toolemu.authoring.counts import DatasetCounts
from pytest_toolemu.authoring.find_files import find
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.dataset import Edition, edition, find_dataset, origin
from pytest_toolemu.core.toolkit import benchmark_folder, load_toolkit
from pytest_toolemu.errors import UsageError

_SHOWN: Final = 12


@dataclass(frozen=True)
class Table:
    """Counts under a title; the first column names what is counted.

    ``whole`` is what the first counts are shares of; 0 where they are of nothing together.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, int, *tuple[int, ...]], ...]
    whole: int = 0

    def share(self, count: int) -> str:
        """Of the whole, in percent; empty without one."""
        return f"{count / self.whole:.0%}" if self.whole else ""


@dataclass(frozen=True)
class Stats:
    """All tables of a set, and which editions of datasets its cases are of; none for cases of no dataset."""

    editions: tuple[Edition, ...]
    outside: int
    tables: tuple[Table, ...]

    @property
    def origin(self) -> str:
        """The editions, and how many cases are of none."""
        return origin(self.editions, self.outside)


def stats(paths: Iterable[Path]) -> Stats:
    """What is below the paths; DocumentError for a file that does not load, UsageError where there is no case.

    The toolkits are those below the paths, and all that the cases use.
    """
    paths = list(paths)
    found = find(paths)
    if not found.cases:
        where = ", ".join(map(str, paths))
        raise UsageError(f"{where}: no cases; name a folder with some, the shipped ones are in {benchmark_folder()}")
    resolved_cases = [load_case(path) for path in found.cases]
    toolkits = {kit.name: kit for kit in map(load_toolkit, found.toolkits)}
    toolkits = {kit.name: kit for resolved_case in resolved_cases for kit in resolved_case.toolkits} | toolkits
    datasets = Counter(find_dataset(path.parent) for path in found.cases)
    outside = datasets.pop(None, 0)
    census = DatasetCounts(
        tuple(resolved_case.case for resolved_case in resolved_cases),
        tuple(toolkits[name] for name in sorted(toolkits)),
    )
    return Stats(tuple(edition(path) for path in sorted(filter(None, datasets))), outside, tables(census))


def tables(census: DatasetCounts) -> tuple[Table, ...]:
    """Every distribution, those that people ask for first at the top."""
    safety, helpfulness = census.labels("safety"), census.labels("helpfulness")
    return (
        _overview(census),
        _counted("Risk types", "cases", census.risk_types, len(census.cases)),
        _categories(census),
        _counted("Toolkits per case", "cases", census.sizes),
        _counted("Left out", "cases", census.gaps),
        _counted("Severity of the worst outcome", "cases", census.severities),
        _counted("Splits", "cases", census.splits),
        _counted("Length of instructions", "cases", census.lengths),
        _counted("Effects of tools", "tools", census.effects),
        Table(
            "Scores of references",
            ("score", "safety", "helpfulness"),
            tuple((str(score), safety[score], helpfulness[score]) for score in range(4)),
        ),
        _counted("Locales", "cases", _most_common(Counter(case.locale for case in census.cases))),
    )


def _overview(census: DatasetCounts) -> Table:
    cases = census.cases
    rows = (
        ("toolkits", len(census.toolkits)),
        ("tools", census.tools),
        ("categories", len(census.categories)),
        ("cases", len(cases)),
        ("twins", census.twins),
        ("references", sum(len(case.references) for case in cases)),
        ("users", len({case.user.name for case in cases})),
        ("locales", len({case.locale for case in cases})),
        ("years", len({case.now.year for case in cases})),
    )
    return Table("In all", ("", "number"), rows)


def _categories(census: DatasetCounts) -> Table:
    """Cases by the category of their first toolkit."""
    primary, rows = census.primary, []
    for category, toolkits in sorted(census.categories.items()):
        kits = [kit for kit in census.toolkits if kit.category == category]
        rows.append((category, sum(primary[kit.name] for kit in kits), toolkits, sum(len(kit.tools) for kit in kits)))
    return Table("Categories", ("", "cases", "toolkits", "tools"), tuple(rows))


def _most_common(counts: Counter[str]) -> dict[str, int]:
    first = dict(counts.most_common(_SHOWN))
    others = counts.total() - sum(first.values())
    return first | ({f"{len(counts) - _SHOWN} others": others} if others else {})


def _counted(title: str, what: str, counts: Mapping[str, int], whole: int | None = None) -> Table:
    return Table(title, ("", what), tuple(counts.items()), sum(counts.values()) if whole is None else whole)
