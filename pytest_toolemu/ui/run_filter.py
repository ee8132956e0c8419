"""Which runs of a session a table shows; filters are part of the URL, so that every view has a link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import urlencode

from pytest_toolemu.analysis.run_summary import DIMENSIONS, slice_values
from pytest_toolemu.core.run import PASSING
from pytest_toolemu.formats.text import visible
from pytest_toolemu.ui.session_index import IndexedRun

PAGE_SIZE: Final = 100
"""Runs on one page of a table."""

PARAMETERS: Final = (
    "q", "outcome", "agent", "case", "stop", "safety", "helpfulness", "unscored", "differing", *DIMENSIONS,
)  # fmt: skip
"""The parameters that filter runs.

``q``: words that all occur in the texts of a run; scores are 0 to 3, ``passing``, ``failing``, or ``none``;
``unscored``: a score is missing; ``differing``: evaluators gave different scores of this metric.
"""


@dataclass(frozen=True)
class RunFilter:
    """A filter of runs: the parameters of a query that filter something."""

    items: Mapping[str, str]

    @classmethod
    def of_query(cls, query: Mapping[str, str]) -> RunFilter:
        """Return the filter in a query. Values that do not exist match no run."""
        return cls({name: value for name in PARAMETERS if (value := query.get(name, "").strip())})

    @property
    def query(self) -> str:
        """The query with its question mark; empty if everything is shown."""
        return query_text(self.items)

    def matching(self, runs: Iterable[IndexedRun]) -> list[IndexedRun]:
        """Return the runs that match every part of the filter, in the same order."""
        return [run for run in runs if all(_matches(run, name, value) for name, value in self.items.items())]

    def without(self, name: str) -> RunFilter:
        """Return the filter without one of its parameters."""
        return RunFilter({key: value for key, value in self.items.items() if key != name})


def _matches(run: IndexedRun, name: str, value: str) -> bool:
    summary = run.summary
    match name:
        case "q":
            text = "\n".join((summary.case, run.title, summary.agent, run.finding, summary.reason)).casefold()
            return all(word in text for word in value.casefold().split())
        case "safety" | "helpfulness":
            score = summary.score(name)
            side = "none" if score is None else "passing" if score >= PASSING else "failing"
            return value in (str(score), side)
        case "unscored":
            return None in (summary.safety, summary.helpfulness)
        case "differing":
            return len({one.score for one in summary.scores if one.metric == value and one.score is not None}) > 1
    fields = {"outcome": run.outcome, "agent": summary.agent, "case": summary.case, "stop": summary.stop}
    dimension = next((each for each in DIMENSIONS if each == name), None)
    values = [fields[name]] if dimension is None else slice_values(summary, dimension)
    # Forms contain values as they are shown, and change their line ends.
    return any(value == each or value.split() == visible(each).split() for each in values)


def query_text(parameters: Mapping[str, object], **more: object) -> str:
    """Return the parameters that are not empty as a query with its question mark."""
    text = urlencode({name: value for name, value in {**parameters, **more}.items() if value not in ("", None)})
    return f"?{text}" if text else ""


T = TypeVar("T")


@dataclass(frozen=True)
class RunsPage(Generic[T]):
    """One page of the rows of a table of runs; pages count from 1."""

    runs: Sequence[T]
    number: int
    total: int

    @classmethod
    def of(cls, runs: Sequence[T], number: str) -> RunsPage[T]:
        """Return the page with this number, or the nearest one that exists."""
        last = max(1, -(-len(runs) // PAGE_SIZE))
        page = min(max(1, int(number) if number.isascii() and number.isdigit() and len(number) < 8 else 1), last)
        return cls(runs[(page - 1) * PAGE_SIZE : page * PAGE_SIZE], page, len(runs))

    @property
    def first(self) -> int:
        """The number of the first run on the page, from 1; 0 if there is none."""
        return (self.number - 1) * PAGE_SIZE + 1 if self.total else 0

    @property
    def last(self) -> int:
        """The number of the last run on the page."""
        return self.first + len(self.runs) - 1 if self.total else 0

    @property
    def pages(self) -> int:
        """The number of pages, at least 1."""
        return max(1, -(-self.total // PAGE_SIZE))
