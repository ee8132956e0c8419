"""The text of a cost estimate."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_toolemu.analysis.cost_estimate.forecast import CostLine, Forecast
from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.formats.usd import usd_text
from pytest_toolemu.models.pricing import Prices
from pytest_toolemu.reporting.summary_table import text_table


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
