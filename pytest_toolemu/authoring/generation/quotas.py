"""Spreads values over numbered slots, so that code and not a model decides how often each occurs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def spread(values: Sequence[T], number: int, key: str) -> T:
    """Return the value of a slot, counted from 0.

    Of n values, each occurs once in every n consecutive slots, in an order that ``key`` determines. A slot keeps its
    value if more slots follow.
    """
    block, position = divmod(number, len(values))
    order = list(values)
    # Seeded with text, the order is the same in every process.
    random.Random(f"{key}/{block}").shuffle(order)
    return order[position]


def several(values: Sequence[T], number: int, key: str, count: int) -> tuple[T, ...]:
    """Return ``count`` different values for a slot, or all if there are fewer; the first one is that of ``spread``."""
    first = spread(values, number, key)
    others = [value for value in values if value != first]
    random.Random(f"{key}/others/{number}").shuffle(others)
    return (first, *others[: count - 1])
