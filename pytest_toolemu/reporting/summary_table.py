"""The summary for the terminal: a table of the agents, and notes on missing verdicts and emulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, get_args

from pytest_toolemu.analysis.cost_estimate import CostEstimate, CostLine
from pytest_toolemu.analysis.emulation_validity import EMULATED, validity_shares
from pytest_toolemu.analysis.metrics import (
    GATE_METRICS,
    NO_VALUE,
    SCORED,
    AgentSummary,
    asking_values,
    format_interval,
    in_one_line,
    user_values,
)
from pytest_toolemu.analysis.run_summary import UNKNOWN, RunSummary, slices
from pytest_toolemu.core.case_vocabulary import Asking
from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.core.run import UNJUDGED
from pytest_toolemu.formats.text import counted, usd_text, visible
from pytest_toolemu.models.pricing import Prices

_COLUMNS: Final = (
    "agent", "n", "safety [95 %]", "SD", "unsafe [95 %]", "help. [95 %]", "SD", "honesty [95 %]", "quit", "inconcl.",
    "broken", "tokens", "cost",
)  # fmt: skip

_OPTIONAL: Final = ("SD", "honesty [95 %]")


def agent_table(summaries: Sequence[AgentSummary], width: int | None) -> list[str]:
    """Return the lines of a table with a row for each agent; a width of None is unlimited.

    A table that is too wide has a column for each agent instead, if that fits.
    """
    if not summaries:
        return []
    cells = zip(_COLUMNS, *map(_cells, summaries), strict=True)
    columns = [column for column in cells if column[0] not in _OPTIONAL or set(column[1:]) != {"-"}]
    rows = list(zip(*columns, strict=True))
    widths = [max(map(len, text_table(table, None))) for table in (rows, columns)]
    return text_table(columns if width is not None and widths[1] <= width < widths[0] else rows, width)


def text_table(rows: Sequence[tuple[str, ...]], width: int | None) -> list[str]:
    """Return the lines of a table, with the first column aligned left and all others aligned right.

    A table that is too wide is split into several tables, each with the first column.
    """
    first, *others = list(zip(*rows, strict=True))
    parts = [[_padded(first, str.ljust)]]
    for column in others:
        padded = _padded(column, str.rjust)
        needed = sum(len(cells[0]) + 2 for cells in parts[-1]) + len(padded[0])
        if width is not None and needed > width and len(parts[-1]) > 1:
            parts.append(parts[0][:1])
        parts[-1].append(padded)
    tables = (("  ".join(cells).rstrip() for cells in zip(*part, strict=True)) for part in parts)
    return "\n\n".join(map("\n".join, tables)).split("\n")


def _padded(column: Sequence[str], pad: Callable[[str, int], str]) -> list[str]:
    width = max(map(len, column))
    return [pad(cell, width) for cell in column]


def agent_notes(summary: AgentSummary) -> list[str]:
    """Return what else there is to say about an agent: its judges, how and whether it asks the user, its emulation."""
    notes = []
    passed = {
        asking: estimate
        for asking, runs in slices(summary.runs, "asking").items()
        if asking != UNKNOWN and (estimate := GATE_METRICS["pass_rate"].estimate(runs)) is not None
    }
    if passed and summary.n > 1:
        shares = ", ".join(
            f"{name} {format_interval(passed[name], '{:.1%}')}" for name in get_args(Asking) if name in passed
        )
        notes.append(f"passed where asking is {shares}")
    if rows := summary.judge_metrics:
        notes.append(f"score of a run: {summary.combination}")
        notes += (
            f"{unsafe.label} {unsafe.text}, helpful {helpful.text}, no verdict {missing.value}"
            for unsafe, helpful, missing in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
        )
    if values := asking_values(summary.runs):
        notes.append(in_one_line(values))
    counts = summary.validity
    if any(counts.get(name) for name in EMULATED):  # a model emulated the world
        measures = ", ".join(f"{count}/{out_of} {label}" for label, count, out_of in validity_shares(counts))
        notes.append(f"emulation: {counted(counts.get('calls', 0), 'call')}: {measures}")
    return [visible(f"{summary.agent}: {note}") for note in notes]


def conversation_notes(runs: Sequence[RunSummary], turns: int) -> list[str]:
    """Return how many cases had several turns and how many one, and how well the user played its part."""
    lines = []
    if turns > 1:
        several = len({run.case for run in runs if run.turns > 1})
        one = len({run.case for run in runs if run.turns == 1})
        kept = f"; {counted(one, 'case')} without 'conversation' had one turn" if one else ""
        lines.append(f"conversations of up to {turns} turns: {counted(several, 'case')}{kept}; no metric mixes the two")
    if values := user_values(runs):
        lines.append(f"user: {in_one_line(values)}")
    return lines


def missing_note(summary: AgentSummary) -> str:
    """Return the effect of runs without a safety verdict on the failure incidence; empty if there are none.

    It is also empty for a session that leaves judging for later: ``unjudged_lines`` says that it has no result yet.
    """
    if not summary.missing or UNJUDGED in summary.missing:
        return ""
    low, high = summary.bounds
    return visible(
        f"{summary.agent}: {summary.n - summary.judged} of {counted(summary.n, 'run')} without a safety verdict; if "
        f"all of them were safe or unsafe, the failure incidence would be {low:.1%} or {high:.1%}"
    )


def unjudged_lines(runs: Sequence[RunSummary], folder: str, *, has_gates: bool, has_evaluator: bool) -> list[str]:
    """Return how many runs have no verdict because they are judged later, and the commands that do it."""
    unjudged = sum(run.outcome == UNJUDGED for run in runs)
    if not unjudged:
        return []
    undecided = "; the gates are decided after judging" if has_gates else ""
    evaluator = "" if has_evaluator else " --evaluator=MODEL"
    return [
        f"{unjudged} of {counted(len(runs), 'run')} {UNJUDGED}: no result yet, neither passed nor failed{undecided}",
        f"judge them: toolemu judge {folder}{evaluator} --to={folder}-judged [--batch]",
        f"then decide: toolemu gate {folder}-judged",
    ]


def _cells(summary: AgentSummary) -> tuple[str, ...]:
    unsafe = summary.metrics["failure_incidence"]
    is_single = summary.n == 1  # which has no statistics
    interval = "" if is_single else unsafe.text.removeprefix(unsafe.value)
    share = f"{unsafe.value} ({summary.failures}/{summary.judged}){interval}"
    deviations = [_or_hyphen(summary.std_text(metric)) for metric in SCORED]
    means = [summary.metrics[f"mean_{metric}"] for metric in SCORED]
    scores = [_or_hyphen(mean.value if is_single else mean.text) for mean in means]
    return (
        visible(summary.agent),
        str(summary.n),
        scores[0],
        deviations[0],
        share if summary.judged else "-",
        scores[1],
        deviations[1],
        scores[2],
        f"{summary.quits / summary.n:.1%}",
        str(summary.count("inconclusive")),
        str(summary.count("broken")),
        summary.tokens_text,
        summary.cost.text,
    )


def _or_hyphen(text: str) -> str:
    return "-" if text == NO_VALUE else text


def estimate_lines(result: CostEstimate, prices: Prices, subject: str, width: int | None = None) -> list[str]:
    """Return a table by role, the total, the basis of the estimate, and the sources of prices.

    ``subject`` is what the estimate is for, such as ``4 runs``.
    """
    if not result.lines:
        return [f"{subject} without a model: no cost. Nothing was sent."]
    rows: list[tuple[str, ...]] = [("role", "model", "requests", "tokens in", "cached", "tokens out", "USD")]
    ordered = sorted(result.lines.items())
    for (role, name), line in ordered:
        usage = [
            f"{line.expected[count]:,.0f} ({line.least[count]:,.0f} to {line.most[count]:,.0f})"
            for count in ("calls", "input", "cached", "output")
        ]
        usd = line.usd(prices)
        rows.append((role, name, *usage, "unknown" if usd is None else "{} ({} to {})".format(*map(usd_text, usd))))
    return [
        *text_table(rows, width),
        _total(result, prices, subject),
        *(f"basis: {sentence}" for sentence in result.basis),
        *_sources([line for _, line in ordered], prices),
        "Nothing was sent.",
    ]


def _total(result: CostEstimate, prices: Prices, subject: str) -> str:
    priced = [usd for line in result.lines.values() if (usd := line.usd(prices)) is not None]
    tokens = round(sum(line.expected["input"] + line.expected["output"] for line in result.lines.values()))
    if not priced:
        return f"{subject}: about {tokens:,} tokens, of unknown cost"
    expected, least, most = (usd_text(sum(column)) for column in zip(*priced, strict=True))
    more = "at least " if len(priced) < len(result.lines) else ""
    return f"{subject}: about {tokens:,} tokens, {more}{expected} USD ({least} to {most})"


def _sources(lines: Sequence[CostLine], prices: Prices) -> list[str]:
    sources = []
    for line in lines:
        listing, name = prices.listing(line.model), provider_and_name(line.model)
        if listing is None:
            sources.append(
                f"price of {name} at {line.model.get('base_url')}: unknown; give it with "
                "-o toolemu_prices=FILE (commands: TOOLEMU_PRICES=FILE)"
            )
        else:
            sources.append(f"price of {name}: {listing.source}, {listing.checked}")
            if line.batch:
                batch = listing.batch
                known = f"{batch.factor:g} times as much: {batch.source}" if batch else "unknown; give it as 'batch'"
                sources.append(f"price of {name} in batches: {known}")
    return list(dict.fromkeys(sources))
