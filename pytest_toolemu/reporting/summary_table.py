"""The summary for the terminal: a table of the agents, and notes on missing verdicts and emulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args

from pytest_toolemu.analysis.cost_estimate.forecast import CostLine, Forecast
from pytest_toolemu.analysis.emulation_validity import EMULATED, validity_shares
from pytest_toolemu.analysis.metrics import AgentSummary, format_interval
from pytest_toolemu.analysis.run_summary import RunSummary, slices
from pytest_toolemu.analysis.statistics.intervals import Estimate
from pytest_toolemu.core.case_vocabulary import Asking
from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.core.verdict import UNJUDGED
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.usd import usd_text
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.models.pricing import Prices
from pytest_toolemu.reporting.dialogue_text import asking_text, user_text

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


def agent_table(summaries: Sequence[AgentSummary], width: int | None) -> list[str]:
    """Return the lines of a table with a row for each agent; a width of None is unlimited.

    Standard deviations have columns of their own if the terminal is wide enough for the whole table.
    """
    if not summaries:
        return []
    rows = [_COLUMNS, *map(_cells, summaries)]
    detailed = [
        (*row[:3], *deviation[:1], *row[3:5], *deviation[1:], *row[5:])
        for row, deviation in zip(rows, _deviations(summaries), strict=True)
    ]
    return text_table(detailed if width is None or _fits(detailed, width) else rows, width)


def text_table(rows: Sequence[tuple[str, ...]], width: int | None) -> list[str]:
    """Return the lines of a table, with the first column aligned left and all others aligned right.

    A table that is too wide is split into several tables, each with the first column. If not even one column fits
    next to the first, each row becomes a list.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    parts = _parts(widths, width)
    if not parts:
        return _lists(rows)
    lines: list[str] = []
    for columns in parts:
        lines += [""] * bool(lines)
        lines += ["  ".join(_cell(row, column, widths) for column in columns).rstrip() for row in rows]
    return lines


def _fits(rows: Sequence[tuple[str, ...]], width: int) -> bool:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return len(_parts(widths, width)) == 1


def _parts(widths: Sequence[int], width: int | None) -> list[list[int]]:
    """Distribute the columns over tables that fit; empty if some column fits into none."""
    parts = [[0]]
    for column in range(1, len(widths)):
        if width is not None and sum(widths[other] + 2 for other in parts[-1]) + widths[column] > width:
            parts.append([0])
        if width is not None and len(parts[-1]) == 1 and widths[0] + 2 + widths[column] > width:
            return []
        parts[-1].append(column)
    return parts


def _cell(row: tuple[str, ...], column: int, widths: Sequence[int]) -> str:
    return row[column].rjust(widths[column]) if column else row[column].ljust(widths[column])


def _lists(rows: Sequence[tuple[str, ...]]) -> list[str]:
    head, *body = rows
    longest = max(map(len, head[1:]))
    return [
        line
        for row in body
        for line in (
            row[0],
            *(f"  {name.ljust(longest)}  {cell}" for name, cell in zip(head[1:], row[1:], strict=True)),
        )
    ]


def protocol_note(runs: Sequence[RunSummary], turns: int) -> list[str]:
    """Return a line with the numbers of cases with several turns and with one; nothing if ``turns`` is 1."""
    if turns == 1:
        return []
    several = len({run.case for run in runs if run.turns > 1})
    one = len({run.case for run in runs if run.turns == 1})
    kept = f"; {counted(one, 'case')} without 'conversation' had one turn" if one else ""
    return [f"conversations of up to {turns} turns: {counted(several, 'case')}{kept}; no metric mixes the two"]


def missing_note(summary: AgentSummary) -> str:
    """Return the effect of runs without a safety verdict on the failure incidence; empty if there are none.

    It is also empty for a session that leaves judging for later: ``unjudged_lines`` says that it has no result yet.
    """
    incidence = summary.incidence
    if not incidence.missing or any(run.outcome == UNJUDGED for run in summary.runs):
        return ""
    low, high = incidence.bounds
    return visible(
        f"{summary.agent}: {incidence.missing} of {counted(summary.n, 'run')} without a safety verdict; if all of them "
        f"were safe or unsafe, the failure incidence would be {low:.1%} or {high:.1%}"
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


def emulation_note(summary: AgentSummary) -> str:
    """Return the emulation validity in one line; empty if no model emulated the world."""
    counts = summary.validity
    if not any(counts.get(name) for name in EMULATED):
        return ""
    measures = ", ".join(f"{count}/{out_of} {label}" for label, count, out_of in validity_shares(counts))
    return visible(f"{summary.agent}: emulation: {counted(counts.get('calls', 0), 'call')}: {measures}")


def asking_note(summary: AgentSummary) -> str:
    """Return the share of passed runs by whether asking the user is needed; empty if no case says so."""
    by_asking = slices(summary.runs, "asking")
    passed = {
        asking: AgentSummary(summary.agent, by_asking[asking]).share(_is_passed)
        for asking in get_args(Asking)
        if asking in by_asking
    }
    texts = [f"{asking} {format_interval(share, '{:.1%}')}" for asking, share in passed.items() if share is not None]
    return visible(f"{summary.agent}: passed where asking is {', '.join(texts)}") if texts else ""


def dialogue_note(summary: AgentSummary) -> str:
    """Return how the agent asks the user in conversations; empty if it had none whose case says whether to ask."""
    text = asking_text(summary.runs)
    return visible(f"{summary.agent}: {text}") if text else ""


def user_note(runs: Sequence[RunSummary]) -> list[str]:
    """Return a line that says how well the user played its part; nothing without a reply."""
    text = user_text(runs)
    return [f"user: {text}"] if text else []


def _is_passed(run: RunSummary) -> bool | None:
    return run.outcome == "passed" if run.outcome in ("passed", "failed") else None


def _cells(summary: AgentSummary) -> tuple[str, ...]:
    incidence = summary.incidence
    share = "-"
    if incidence.rate is not None and incidence.interval is not None:
        low, high = incidence.interval
        share = f"{incidence.rate:.1%} ({incidence.failures}/{incidence.judged}) [{low:.1%}, {high:.1%}]"
    quits = f"{summary.quits / summary.n:.1%}"
    return (
        visible(summary.agent),
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


def _deviations(summaries: Sequence[AgentSummary]) -> list[tuple[str, str]]:
    """Return the columns of standard deviations of safety and helpfulness, with their headings."""
    deviations = [(summary.std("safety"), summary.std("helpfulness")) for summary in summaries]
    return [
        ("SD", "SD"),
        *((_format_deviation(safety), _format_deviation(helpfulness)) for safety, helpfulness in deviations),
    ]


def _format_deviation(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _mean(estimate: Estimate | None) -> str:
    return "-" if estimate is None else format_interval(estimate, "{:.2f}")


def estimate_lines(result: Forecast, prices: Prices, subject: str, width: int | None = None) -> list[str]:
    """Return a table by role, the total, the basis of the estimate, and the sources of prices.

    ``subject`` is what the estimate is for, such as ``4 runs``.
    """
    if not result.lines:
        return [f"{subject} without a model: no cost. Nothing was sent."]
    rows: list[tuple[str, ...]] = [("role", "model", "requests", "tokens in", "cached", "tokens out", "USD")]
    ordered = sorted(result.lines.items())
    rows += [(role, name, *_usage(line), _usd(line, prices)) for (role, name), line in ordered]
    return [
        *text_table(rows, width),
        _total(result, prices, subject),
        *(f"basis: {sentence}" for sentence in result.basis),
        *_sources([line for _, line in ordered], prices),
        "Nothing was sent.",
    ]


def _usage(line: CostLine) -> tuple[str, ...]:
    names = ("calls", "input", "cached", "output")
    return tuple(
        f"{getattr(line.expected, name):,} ({getattr(line.least, name):,} to {getattr(line.most, name):,})"
        for name in names
    )


def _usd(line: CostLine, prices: Prices) -> str:
    usd = line.usd(prices)
    return "unknown" if usd is None else "{} ({} to {})".format(*map(usd_text, usd))


def _total(result: Forecast, prices: Prices, subject: str) -> str:
    priced = [usd for line in result.lines.values() if (usd := line.usd(prices)) is not None]
    tokens = sum(line.expected.total for line in result.lines.values())
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
                "--toolemu-prices=FILE (commands: TOOLEMU_PRICES=FILE)"
            )
        else:
            sources.append(f"price of {name}: {listing.source}, {listing.checked}")
            if line.batch:
                batch = listing.batch
                known = f"{batch.factor:g} times as much: {batch.source}" if batch else "unknown; give it as 'batch'"
                sources.append(f"price of {name} in batches: {known}")
    return list(dict.fromkeys(sources))
