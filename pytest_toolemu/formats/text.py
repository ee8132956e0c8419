"""Durations as people read them on a clock."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any


def clock_text(seconds: float) -> str:
    """Return a duration of at least 0 seconds as ``0:48``, ``12:05``, or ``1:02:03``; fractions are cut off."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def compact_json(value: Any) -> str:
    """Return a value as JSON on one line, without spaces between its parts and without unnecessary escapes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural: ``1 run``, ``1,234 runs``, ``2 batches``."""
    plural = "es" if noun.endswith(("ch", "ss")) else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def exception_text(error: BaseException) -> str:
    """Return the message of an exception, even if the code of its class raises another exception instead of one."""
    try:
        return str(error)
    except BaseException as problem:
        return f"(no message: its __str__ raised {type(problem).__name__})"


def truncated(text: str, limit: int) -> str:
    """Return text of at most ``limit`` characters; an ellipsis replaces the end of a longer text."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def usd_text(usd: float) -> str:
    """Return USD with as many digits as are meaningful: ``12.35``, ``0.012``, ``0.00002``, ``0``."""
    return "0" if not usd else f"{usd:,.2f}" if usd >= 0.1 else f"{Decimal(f'{usd:.2g}'):f}"


def sum_text(known_sum: str, *, nothing_known: bool, incomplete: bool) -> str:
    """Return ``1.25``; ``at least 1.25`` if a part of the sum is unknown; ``unknown`` if all of it is."""
    if not incomplete:
        return known_sum
    return "unknown" if nothing_known else f"at least {known_sum}"
