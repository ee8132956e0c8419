"""Format sums of money and of tokens, and mark sums of which a part is unknown."""

from __future__ import annotations

from decimal import Decimal


def usd_text(usd: float) -> str:
    """Return USD with as many digits as are meaningful: ``12.35``, ``0.012``, ``0.00002``, ``0``."""
    return "0" if not usd else f"{usd:,.2f}" if usd >= 0.1 else f"{Decimal(f'{usd:.2g}'):f}"


def sum_text(known_sum: str, *, nothing_known: bool, incomplete: bool) -> str:
    """Return ``1.25``; ``at least 1.25`` if a part of the sum is unknown; ``unknown`` if all of it is."""
    if not incomplete:
        return known_sum
    return "unknown" if nothing_known else f"at least {known_sum}"
