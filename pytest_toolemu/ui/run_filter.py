"""Which runs of a session a table shows; filters are part of the URL, so that every view has a link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from urllib.parse import urlencode

from pytest_toolemu.analysis.run_summary import DIMENSIONS, Dimension, RunSummary, slice_values
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.ui.session_index import IndexedRun

PAGE_SIZE: Final = 100
"""Runs on one page of a table."""

SCORES: Final = ("0", "1", "2", "3", "passing", "failing", "none")
"""Values of the filters by a score: the score, on which side of 2 it is, or that there is none."""

TEXTS: Final = ("q", "outcome", "agent", "case", "stop", "unscored", "differing")
METRICS: Final[tuple[Metric, ...]] = ("safety", "helpfulness")


@dataclass(frozen=True)
class RunFilter:
    """A filter of runs; empty values filter nothing. ``q`` is words that all occur in the texts of a run."""

    q: str = ""
    outcome: str = ""
    agent: str = ""
    case: str = ""
    stop: str = ""
    scores: Mapping[Metric, str] = field(default_factory=dict)
    slices: Mapping[Dimension, str] = field(default_factory=dict)
    unscored: str = ""
    """Any text: only runs without one of the scores."""
    differing: str = ""
    """Only runs whose evaluators gave different scores of this metric."""

    @classmethod
    def of_query(cls, query: Mapping[str, str]) -> RunFilter:
        """Return the filter in a query. Values that do not exist match no run."""
        texts = {name: query.get(name, "").strip() for name in TEXTS}
        scores = {metric: query[metric] for metric in METRICS if query.get(metric)}
        slices = {dimension: query[dimension] for dimension in DIMENSIONS if query.get(dimension)}
        return cls(**texts, scores=scores, slices=slices)

    @property
    def items(self) -> dict[str, str]:
        """The parameters of the query that filter something."""
        texts = {name: value for name in TEXTS if (value := getattr(self, name))}
        return texts | dict(self.scores.items()) | dict(self.slices.items())

    @property
    def query(self) -> str:
        """The query with its question mark; empty if everything is shown."""
        return query_text(self.items)

    def matching(self, runs: Iterable[IndexedRun]) -> list[IndexedRun]:
        """Return the runs that match, in the same order."""
        return [run for run in runs if self.matches(run)]

    def matches(self, run: IndexedRun) -> bool:
        """Return whether a run matches every part of the filter."""
        summary = run.summary
        return (
            self.outcome in ("", run.outcome)
            and is_selected(self.agent, summary.agent)
            and is_selected(self.case, summary.case)
            and is_selected(self.stop, summary.stop)
            and all(_has_score(summary, metric, score) for metric, score in self.scores.items())
            and all(
                any(is_selected(selected, value) for value in slice_values(summary, dimension))
                for dimension, selected in self.slices.items()
            )
            and (not self.unscored or None in (summary.safety, summary.helpfulness))
            and (not self.differing or _differ(summary, self.differing))
            and all(word in _text(run) for word in self.q.casefold().split())
        )

    def without(self, name: str) -> RunFilter:
        """Return the filter without one of its parameters."""
        return RunFilter.of_query({key: value for key, value in self.items.items() if key != name})


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


def is_selected(selected: str, value: str) -> bool:
    """Return whether a value is selected. Forms contain values as they are shown, and change their line ends."""
    return not selected or selected == value or selected.split() == visible(value).split()


def _differ(summary: RunSummary, metric: str) -> bool:
    return len({one.score for one in summary.scores if one.metric == metric and one.score is not None}) > 1


def _has_score(summary: RunSummary, metric: Metric, selected: str) -> bool:
    score = summary.score(metric)
    if score is None or selected == "none":
        return score is None and selected == "none"
    return selected in (str(score), "passing" if score >= 2 else "failing")


def _text(run: IndexedRun) -> str:
    summary = run.summary
    return "\n".join((summary.case, run.title, summary.agent, run.finding, summary.reason)).casefold()
