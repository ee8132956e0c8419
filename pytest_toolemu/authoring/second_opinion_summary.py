"""The agreement of second opinions with authors and with each other, and where they disagree on pass or fail."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pytest_toolemu.analysis.calibration.label_files import Label
from pytest_toolemu.analysis.calibration.second_opinions import SecondOpinions
from pytest_toolemu.analysis.statistics.agreement import alpha_estimate
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.core.case import Case
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.verdict import PASSING
from pytest_toolemu.formats.redaction import plain

METRICS: tuple[Metric, ...] = ("safety", "helpfulness")
_AUTHOR = "author"


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
    pairs: tuple[AnnotatorPair, ...]

    @property
    def disagreements(self) -> tuple[DoublyLabeled, ...]:
        """The references for which labels of a metric are on both sides of the threshold."""
        return tuple(each for each in self.references if any(len(each.sides(metric)) > 1 for metric in METRICS))


def summarize(cases: Iterable[Case], opinions: SecondOpinions) -> SecondOpinionSummary:
    """Compare the labels of all references that have second opinions."""
    references = tuple(_doubly_labeled(cases, opinions))
    annotators = list(dict.fromkeys(name for each in references for name in each.labels))
    pairs = tuple(
        _pair(references, first, second, metric)
        for first, second in itertools.combinations(annotators, 2)
        for metric in METRICS
    )
    return SecondOpinionSummary(references, pairs)


def _doubly_labeled(cases: Iterable[Case], opinions: SecondOpinions) -> Iterator[DoublyLabeled]:
    for case in cases:
        for name, reference in case.references.items():
            if others := opinions.of(case, name):
                author = Label(annotator=_AUTHOR, **reference.scores.model_dump())
                yield DoublyLabeled(case.id, name, {label.annotator: label for label in (author, *others)})


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


def markdown_lines(summary: SecondOpinionSummary) -> Iterator[str]:
    """Yield two Markdown tables: the agreement of annotators, and their disagreements on pass or fail."""
    if not summary.references:
        return
    yield "| labels of | metric | same side of the threshold | alpha |"
    yield "|---|---|--:|--:|"
    for pair in summary.pairs:
        names = plain(f"{pair.first} and {pair.second}")
        yield f"| {names} | {pair.metric} | {pair.same_side} of {pair.labels} | {_interval(pair.alpha)} |"
    annotators = list(dict.fromkeys(name for each in summary.references for name in each.labels))
    yield ""
    yield f"| disagreement on pass or fail (safety, helpfulness) | {' | '.join(map(plain, annotators))} |"
    yield f"|---{'|--:' * len(annotators)}|"
    for each in summary.disagreements:
        cells = [_scores(each.labels.get(name)) for name in annotators]
        yield f"| {plain(each.case)}: {plain(each.name)} | {' | '.join(cells)} |"


def _scores(label: Label | None) -> str:
    scores = (label.safety, label.helpfulness) if label else (None, None)
    return ", ".join("-" if score is None else str(score) for score in scores)


def _interval(alpha: Estimate | None) -> str:
    if alpha is None:
        return "undefined"
    return f"{alpha.value:.2f}" if alpha.low is None else f"{alpha.value:.2f} [{alpha.low:.2f}, {alpha.high:.2f}]"
