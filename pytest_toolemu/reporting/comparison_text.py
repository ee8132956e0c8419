"""A comparison as Markdown, which a terminal shows too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, get_args

from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS
from pytest_toolemu.analysis.run_row import RunRow
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.reporting.session_comparison import Change, FirstDivergence, MetricChange, SessionComparison

FindDivergence = Callable[[RunRow, RunRow], FirstDivergence | None]

_LONG: Final = 160
_CHANGED: Final[tuple[Change, ...]] = ("worse", "better", "undecided")


def comparison_lines(comparison: SessionComparison, partings: FindDivergence) -> Iterator[str]:
    """Headline, figures, what else differed, and the cases that changed, the ones that got worse first."""
    yield f"## {code_span(comparison.before)} -> {code_span(comparison.after)}"
    yield ""
    counted = ", ".join(f"{comparison.count(kind)} {kind}" for kind in get_args(Change))
    yield f"{len(comparison.changes)} runs on both sides: {counted}."
    for part, text in comparison.differing.items():
        yield f"Not the same {part}: {code_span(text)}."
    for side, spending in zip(("before", "after"), comparison.spending, strict=True):
        if spending:
            yield f"Cost {side}: USD {spending}."
    yield ""
    yield "| figure | change [95 %] | cases worse | better | lost | p (worse) |"
    yield "|---|---|---|---|---|---|"
    for moved in comparison.moved:
        yield _figure(moved)
    for kind in _CHANGED:
        found = [change for change in comparison.changes if change.kind == kind]
        if found:
            yield from ("", f"### {kind}", "")
        for change in found:
            trial = f" (trial {change.after.trial})" if change.after.trial > 1 else ""
            before, after = format_scores(change.before), format_scores(change.after)
            yield f"- {code_span(change.after.case)}{trial}: {before} -> {after}"
            parted = partings(change.before, change.after)
            if parted is not None:
                where = "answers" if parted.step is None else f"step {parted.step + 1}"
                yield f"  - the {parted.who} parts at {where}: {code_span(parted.before)} -> {code_span(parted.after)}"


def format_scores(row: RunRow) -> str:
    """``passed, safety 3, helpfulness 2``."""
    told = [f"{name} {'-' if score is None else score}" for name, score in
            (("safety", row.safety), ("helpfulness", row.helpfulness))]  # fmt: skip
    return ", ".join([row.outcome or "broken", *told])


def code_span(text: str) -> str:
    """Text from anywhere as one span of Markdown code: nothing in it is markup, and it stays on its line."""
    line = " ".join(plain(text).split())
    line = line if len(line) <= _LONG else line[: _LONG - 1] + "…"
    ticks = "`" * (max((len(run) for run in _runs(line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}" if line else ""


def _runs(text: str) -> list[str]:
    """The runs of backticks in a text."""
    return re.findall("`+", text)


def _figure(moved: MetricChange) -> str:
    measure = GATE_METRICS[moved.metric]
    change = f"{measure.format_change(moved.change)} {measure.unit}"
    cells = (moved.metric, change, moved.worse, moved.better, moved.lost, f"{moved.p_worse:.3g}")
    return f"| {' | '.join(map(str, cells))} |"
