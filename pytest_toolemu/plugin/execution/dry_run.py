"""``--toolemu-estimate``: print what a run would cost instead of running it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_toolemu.analysis.cost_estimate.forecast import CostLine, Forecast, forecast
from pytest_toolemu.analysis.cost_estimate.world_forecast import world_forecast
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.run_spec import RunSpec
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.formats.usd import usd_text
from pytest_toolemu.models.pricing import Prices
from pytest_toolemu.plugin.collection import environment_variables
from pytest_toolemu.plugin.collection.agent_configs import agent_configs
from pytest_toolemu.plugin.execution.item_spec import spec_before_turn
from pytest_toolemu.plugin.keys import RESOLVED_CASE
from pytest_toolemu.plugin.output.terminal_width import terminal_width
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.reporting.summary_table import text_table


def show(services: Services, items: Sequence[pytest.Item]) -> None:
    """Print the estimate of all collected cases; nothing is sent and nothing is run. Raise pytest.UsageError."""
    try:
        _show(services, items)
    except UsageError as error:
        raise pytest.UsageError(f"toolemu: {error}") from None


def _show(services: Services, items: Sequence[pytest.Item]) -> None:
    session = services.session
    environment_variables.check(session.config)
    reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is None:
        raise UsageError("--toolemu-estimate prints to pytest's terminal, which -p no:terminal disables; remove one")
    cases = [item for item in items if RESOLVED_CASE in item.stash]
    specs = [spec for item in cases if (spec := _spec(item, services)) is not None]
    if cases and not specs:
        raise UsageError(
            f"--toolemu-estimate: fixtures create the agents of all cases ({len(cases)}), and an estimate runs no "
            "fixtures; name an agent with --toolemu-agent=NAME"
        )
    records = (session.config.rootpath / str(session.settings.run_dir)).glob("*/*--*.json")
    result = asyncio.run(forecast(specs, session.settings.max_steps, records))
    if worlds := _missing_worlds(services, cases):
        model = services.models.open_components().builder(agent_configs(session.settings))
        builder, cost_line, sentence = world_forecast(worlds, model)
        result = Forecast({**result.lines, builder: cost_line}, (*result.basis, sentence))
    reporter.section("toolemu: estimate")
    for line in lines(result, services.files.prices, len(specs), terminal_width(session.config)):
        reporter.write_line(plain(line))
    if omitted := len(cases) - len(specs):
        reporter.write_line(f"not in the estimate: {counted(omitted, 'case')} with an agent that a fixture creates")


def _missing_worlds(services: Services, items: Sequence[pytest.Item]) -> list[tuple[ResolvedCase, int]]:
    """Return the cases for which the session would have to build worlds, with the numbers of the worlds."""
    if services.session.settings.world != "built":
        return []
    from pytest_toolemu.plugin.execution.build_worlds import missing_worlds

    return [(planned.resolved_case, planned.variant) for planned in missing_worlds(items)]


def _spec(item: pytest.Item, services: Services) -> RunSpec | None:
    return spec_before_turn(item, services) if isinstance(item, pytest.Function) else None


def lines(result: Forecast, prices: Prices, runs: int, width: int | None = None) -> list[str]:
    """Return a table by role, the total, the basis of the estimate, and the sources of prices."""
    if not result.lines:
        return [f"{counted(runs, 'run')} without a model: no cost. Nothing was sent."]
    rows: list[tuple[str, ...]] = [("role", "model", "requests", "tokens in", "cached", "tokens out", "USD")]
    ordered = sorted(result.lines.items())
    rows += [(role, name, *_usage(line), _usd(line, prices)) for (role, name), line in ordered]
    return [
        *text_table(rows, width),
        _total(result, prices, runs),
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


def _total(result: Forecast, prices: Prices, runs: int) -> str:
    priced = [usd for line in result.lines.values() if (usd := line.usd(prices)) is not None]
    tokens = sum(line.expected.total for line in result.lines.values())
    if not priced:
        return f"{counted(runs, 'run')}: about {tokens:,} tokens, of unknown cost"
    expected, least, most = (usd_text(sum(column)) for column in zip(*priced, strict=True))
    more = "at least " if len(priced) < len(result.lines) else ""
    return f"{counted(runs, 'run')}: about {tokens:,} tokens, {more}{expected} USD ({least} to {most})"


def _sources(lines: Sequence[CostLine], prices: Prices) -> list[str]:
    sources = []
    for line in lines:
        listing, name = prices.listing(line.model), f"{line.model.get('provider')}:{line.model.get('name')}"
        if listing is None:
            sources.append(
                f"price of {name} at {line.model.get('base_url')}: unknown; give it with --toolemu-prices=FILE"
            )
        else:
            sources.append(f"price of {name}: {listing.source}, {listing.checked}")
    return list(dict.fromkeys(sources))
