"""``--toolemu-estimate``: what this run would cost, in the terminal, in place of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_toolemu.analysis.cost_estimate.forecast import CostLine, Forecast, forecast
from pytest_toolemu.core.run_spec import RunSpec
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.formats.usd import usd_text
from pytest_toolemu.models.pricing import Prices
from pytest_toolemu.plugin.collection import environment_variables
from pytest_toolemu.plugin.execution.item_components import spec_before_turn
from pytest_toolemu.plugin.output.terminal_width import terminal_width
from pytest_toolemu.plugin.session import ITEM, SESSION
from pytest_toolemu.reporting.summary_table import text_table


def show(session: pytest.Session) -> None:
    """Print the estimate of all cases that were collected; nothing is sent and nothing is run."""
    toolemu = session.config.stash[SESSION]
    environment_variables.check(session.config)
    reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is None:
        raise UsageError("--toolemu-estimate prints to pytest's terminal, which -p no:terminal disables; remove one")
    cases = [item for item in session.items if ITEM in item.stash]
    planned = [spec for item in cases if (spec := _spec(item)) is not None]
    if cases and not planned:
        raise UsageError(
            f"--toolemu-estimate: the agents of all {len(cases)} cases are made by fixtures, which an estimate does "
            "not run; name an agent with --toolemu-agent=NAME"
        )
    records = (toolemu.config.rootpath / str(toolemu.settings.run_dir)).glob("*/*--*.json")
    found = asyncio.run(forecast(planned, toolemu.settings.max_steps, records))
    reporter.section("toolemu: estimate")
    for line in lines(found, toolemu.prices, len(planned), terminal_width(session.config)):
        reporter.write_line(plain(line))
    if left_out := len(cases) - len(planned):
        reporter.write_line(f"not in the estimate: {left_out} cases whose agents are made by fixtures")


def _spec(item: pytest.Item) -> RunSpec | None:
    if ITEM not in item.stash or not isinstance(item, pytest.Function):
        return None
    return spec_before_turn(item, item.config.stash[SESSION])


def lines(found: Forecast, prices: Prices, runs: int, width: int | None = None) -> list[str]:
    """A table by role, the total, what it rests on, and where prices are from."""
    if not found.lines:
        return [f"{runs} runs ask no model: they cost nothing. Nothing was sent."]
    rows: list[tuple[str, ...]] = [("role", "model", "requests", "tokens in", "cached", "tokens out", "USD")]
    ordered = sorted(found.lines.items())
    rows += [(role, name, *_figures(line), _usd(line, prices)) for (role, name), line in ordered]
    return [
        *text_table(rows, width),
        _total(found, prices, runs),
        *(f"basis: {sentence}" for sentence in found.basis),
        *_sources([line for _, line in ordered], prices),
        "Nothing was sent.",
    ]


def _figures(line: CostLine) -> tuple[str, ...]:
    names = ("calls", "input", "cached", "output")
    return tuple(
        f"{getattr(line.expected, name):,} ({getattr(line.least, name):,} to {getattr(line.most, name):,})"
        for name in names
    )


def _usd(line: CostLine, prices: Prices) -> str:
    usd = line.usd(prices)
    return "unknown" if usd is None else "{} ({} to {})".format(*map(usd_text, usd))


def _total(found: Forecast, prices: Prices, runs: int) -> str:
    known = [usd for line in found.lines.values() if (usd := line.usd(prices)) is not None]
    tokens = sum(line.expected.total for line in found.lines.values())
    if not known:
        return f"{runs} runs: about {tokens:,} tokens, of unknown cost"
    expected, least, most = (usd_text(sum(column)) for column in zip(*known, strict=True))
    more = "at least " if len(known) < len(found.lines) else ""
    return f"{runs} runs: about {tokens:,} tokens, {more}{expected} USD ({least} to {most})"


def _sources(shown: Sequence[CostLine], prices: Prices) -> list[str]:
    told = []
    for line in shown:
        listing, name = prices.listing(line.model), f"{line.model.get('provider')}:{line.model.get('name')}"
        if listing is None:
            told.append(f"price of {name} at {line.model.get('base_url')}: unknown; give it with --toolemu-prices=FILE")
        else:
            told.append(f"price of {name}: {listing.source}, {listing.checked}")
    return list(dict.fromkeys(told))
