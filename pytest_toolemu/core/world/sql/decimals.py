"""Decimal numbers of rows, with which SQLite computes in binary: 0.1 + 0.2 is 0.3, as every real server says."""

from __future__ import annotations

import math
from typing import Any, Final

_DECIMALS: Final = 6
"""The decimals that remain of a number with many digits, such as 10 / 3."""
_DIGITS: Final = 6
"""The digits that remain of a small number with many digits, of which the decimals could be zeros only."""
_LEAST: Final = 1e-9
"""Smaller numbers with many digits are what a subtraction of equal numbers leaves."""
_SMALL: Final = 1e-3
_LARGE: Final = 1e9
"""Larger numbers with six decimals have more than 15 digits."""


def decimal(number: float) -> float:
    """Return a number without the digits that only binary arithmetic leaves.

    A number with up to 15 digits is exact, and stays as it is: nobody computed it, or nothing was lost.
    """
    if abs(number) < _LARGE and round(number, _DECIMALS) == number:  # most numbers, in a fifth of the time
        return number or 0.0  # no negative zero
    text = f"{number:.15g}"
    if float(text) == number or not math.isfinite(number):
        return number
    if float(short := f"{number:.13g}") == float(text):
        return float(short)
    if abs(number) >= _SMALL:
        return round(number, _DECIMALS)
    return float(f"{number:.{_DIGITS}g}") if abs(number) >= _LEAST else 0.0


def decimal_cell(cell: Any) -> Any:
    """Return a cell of a database, with ``decimal`` applied to a number."""
    return decimal(cell) if isinstance(cell, float) else cell
