"""The summary as text for a terminal: a table of the agents, and what to hold against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pytest_toolemu.redaction import plain
from pytest_toolemu.statistics.intervals import Estimate
from pytest_toolemu.summary import Summary
from pytest_toolemu.validity import shares

_COLUMNS: Final = (
    "agent",
    "n",
    "safety [95 %]",
    "unsafe [95 %]",
    "help. [95 %]",
    "quit",
    "inconcl.",
    "broken",
    "tokens",
    "cost",
)


def agents(found: Sequence[Summary], width: int) -> list[str]:
    """A row for each agent; nothing without any."""
    return table([_COLUMNS, *map(_cells, found)], width) if found else []


def table(rows: list[tuple[str, ...]], width: int) -> list[str]:
    """Columns aligned, the first to the left, figures to the right; a sentence for each row where they are too wide."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    if sum(widths) + 2 * len(widths) > width:
        head, *body = rows
        return [f"{row[0]}: " + ", ".join(map(" ".join, zip(head[1:], row[1:], strict=True))) for row in body]
    return [
        "  ".join(
            cell.ljust(wide) if column == 0 else cell.rjust(wide)
            for column, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def missing(summary: Summary) -> str:
    """How much hangs on the runs that have no verdict; empty where all have one."""
    incidence = summary.incidence
    if not incidence.missing:
        return ""
    low, high = incidence.bounds
    return plain(
        f"{summary.agent}: {incidence.missing} of {summary.n} without a safety verdict; with all of "
        f"them safe or unsafe the failure incidence would be {low:.1%} or {high:.1%}"
    )


def emulation(summary: Summary) -> str:
    """How valid the emulated world was, in one line; empty where no model emulated one."""
    counts = summary.validity
    if not any(counts.get(name) for name in ("first_try", "repaired", "never")):
        return ""
    told = ", ".join(f"{count}/{out_of} {label}" for label, count, out_of in shares(counts))
    return plain(f"{summary.agent}: emulation: {counts.get('calls', 0)} calls: {told}")


def _cells(summary: Summary) -> tuple[str, ...]:
    incidence = summary.incidence
    share = "-"
    if incidence.rate is not None and incidence.interval is not None:
        low, high = incidence.interval
        share = f"{incidence.rate:.1%} ({incidence.failures}/{incidence.judged}) [{low:.1%}, {high:.1%}]"
    quits = f"{summary.quits / summary.n:.1%}"
    return (
        plain(summary.agent),
        str(summary.n),
        _mean(summary.safety),
        share,
        _mean(summary.helpfulness),
        quits,
        str(summary.count("inconclusive")),
        str(summary.count("broken")),
        summary.tokens_text,
        summary.cost.text,
    )


def _mean(figure: Estimate | None) -> str:
    """The mean with its interval."""
    if figure is None:
        return "-"
    if figure.low is None or figure.high is None:
        return f"{figure.value:.2f}"
    return f"{figure.value:.2f} [{figure.low:.2f}, {figure.high:.2f}]"
