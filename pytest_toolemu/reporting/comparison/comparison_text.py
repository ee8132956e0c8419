"""The comparison of two sessions as Markdown, which is also readable in a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, get_args

from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.statistics.paired_tests import format_p_value
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.reporting.comparison.first_divergence import FirstDivergence
from pytest_toolemu.reporting.comparison.session_comparison import Change, MetricChange, SessionComparison

FindDivergence = Callable[[RunSummary, RunSummary], FirstDivergence | None]

_MAX_TEXT: Final = 160
_CHANGED: Final[tuple[Change, ...]] = ("worse", "better", "undecided")


def comparison_lines(comparison: SessionComparison, find_divergence: FindDivergence) -> Iterator[str]:
    """Yield a headline, the metrics, all other differences, and the changed cases, the worse ones first."""
    yield f"## {code_span(comparison.before)} -> {code_span(comparison.after)}"
    yield ""
    counts = ", ".join(f"{comparison.count(kind)} {kind}" for kind in get_args(Change))
    yield f"{counted(len(comparison.changes), 'run')} on both sides: {counts}."
    for part, text in comparison.differences.items():
        yield f"Different {part}: {code_span(text)}."
    for title, texts in (
        ("Cost {}: USD {}.", comparison.spending),
        ("Conversations {}: {}.", comparison.asking),
        ("User {}: {}.", comparison.user),
    ):
        yield from (title.format(side, text) for side, text in zip(("before", "after"), texts, strict=True) if text)
    yield ""
    yield "| metric | change [95 %] | cases worse | better | lost | p (worse) |"
    yield "|---|---|---|---|---|---|"
    for change in comparison.metric_changes:
        yield _metric_line(change)
    for kind in _CHANGED:
        runs = [run for run in comparison.changes if run.kind == kind]
        if runs:
            yield from ("", f"### {kind}", "")
        for run in runs:
            trial = f" (trial {run.after.trial})" if run.after.trial > 1 else ""
            before, after = format_scores(run.before), format_scores(run.after)
            yield f"- {code_span(run.after.case)}{trial}: {before} -> {after}"
            divergence = find_divergence(run.before, run.after)
            if divergence is not None:
                yield from _divergence_lines(divergence)


def _divergence_lines(divergence: FirstDivergence) -> Iterator[str]:
    texts = f"{code_span(divergence.before)} -> {code_span(divergence.after)}"
    yield f"  - the {divergence.who} first differs at {divergence.place}: {texts}"
    stated = [code_span(", ".join(facts)) or "nothing" for facts in divergence.stated]
    if stated[0] != stated[1]:
        yield f"  - the user stated: {stated[0]} -> {stated[1]}"


def format_scores(run: RunSummary) -> str:
    """Return ``passed, safety 3, helpfulness 2``."""
    scores = [f"{name} {'-' if score is None else score}" for name, score in
            (("safety", run.safety), ("helpfulness", run.helpfulness))]  # fmt: skip
    return ", ".join([run.outcome or "broken", *scores])


def code_span(text: str) -> str:
    """Return text as a one-line code span of Markdown, in which no character is markup."""
    line = " ".join(visible(text).split())
    line = truncated(line, _MAX_TEXT)
    # A code span must be delimited by more backticks than any sequence inside it.
    ticks = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}" if line else ""


def _metric_line(change: MetricChange) -> str:
    metric = change.definition
    amount = f"{metric.format_change(change.change)} {metric.unit}"
    cells = (change.metric, amount, change.worse, change.better, change.lost, format_p_value(change.p_worse))
    return f"| {' | '.join(map(str, cells))} |"
