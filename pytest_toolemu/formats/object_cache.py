"""Caches functions of objects that are not hashable, such as records that contain dictionaries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

P = TypeVar("P")
R = TypeVar("R")


def once_per_object(size: int) -> Callable[[Callable[[P], R]], Callable[[P], R]]:
    """Return a decorator that caches a function by the identity of its argument, which must not change.

    Not by equality, because equal dictionaries may have their members in a different order. With more than ``size``
    objects, the cache starts again.
    """

    def decorate(function: Callable[[P], R]) -> Callable[[P], R]:
        # The object is kept, so that its id stays its own.
        cache: dict[int, tuple[P, R]] = {}

        @functools.wraps(function)
        def cached(argument: P) -> R:
            entry = cache.get(id(argument))
            if entry is None:
                if len(cache) >= size:
                    cache.clear()
                entry = cache[id(argument)] = (argument, function(argument))
            return entry[1]

        return cached

    return decorate
