"""How sums of money are written."""

from __future__ import annotations


def usd_text(usd: float) -> str:
    """USD with as many digits as say something: ``12.35``, ``0.0123``, ``0``."""
    return "0" if not usd else f"{usd:,.2f}" if usd >= 0.1 else f"{usd:.2g}"
