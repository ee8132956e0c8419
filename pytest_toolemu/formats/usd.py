"""Write sums of money and tokens, and say so where a part of a sum is unknown."""

from __future__ import annotations


def usd_text(usd: float) -> str:
    """USD with as many digits as say something: ``12.35``, ``0.0123``, ``0``."""
    return "0" if not usd else f"{usd:,.2f}" if usd >= 0.1 else f"{usd:.2g}"


def sum_text(known: str, *, nothing_known: bool, incomplete: bool) -> str:
    """Return ``1.25``, ``at least 1.25`` where a part of the sum is unknown, ``unknown`` where all of it is."""
    if not incomplete:
        return known
    return "unknown" if nothing_known else f"at least {known}"
