"""Texts that are nearly the same, among any number of them."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

_SIZE: Final = 4
# So many of the rarest pieces must be common before two texts are compared: more make fewer comparisons of more work.
_COMMON: Final = 12
_DIGITS: Final = re.compile(r"\d+")
_BETWEEN: Final = re.compile(r"\W+")


def near_duplicates(texts: Sequence[str], least: float) -> Iterator[tuple[int, int, float]]:
    """For each text that resembles one before it: its index, that of the one before, and how similar they are.

    Similarity is the share of four-letter pieces that both have among those that either has (Jaccard); letter case,
    punctuation and the value of numbers do not count. All pairs with at least ``least`` are found, though few pairs are
    compared: a text of n pieces shares ``least * n`` with each that resembles it, hence some with its rarest ones. A
    text that was reported is compared with no later one, so that a thousand copies take no longer than other texts.
    """
    pieces = [_pieces(text) for text in texts]
    frequency = Counter(piece for found in pieces for piece in found)
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for index, found in enumerate(pieces):
        common = _share(least, len(found))
        rarest = sorted(found, key=lambda piece: (frequency[piece], piece))
        rarest = rarest[: len(found) - common + min(_COMMON, common)]
        # What resembles this may be shorter, and then has fewer pieces to share.
        enough = min(_COMMON, _share(least, common))
        shared: Counter[int] = Counter()
        for piece in rarest:
            shared.update(holders[piece])
        candidates = sorted((-count, other) for other, count in shared.items() if count >= enough)
        alike = ((other, _similarity(found, pieces[other])) for _, other in candidates)
        nearest = next(((other, similarity) for other, similarity in alike if similarity >= least), None)
        if nearest is not None:
            yield index, *nearest
            continue
        for piece in rarest:
            holders[piece].append(index)


def _share(least: float, count: int) -> int:
    return max(1, math.ceil(least * count - 1e-9))


def _pieces(text: str) -> frozenset[str]:
    plain = f" {_BETWEEN.sub(' ', _DIGITS.sub('0', text.casefold())).strip()} "
    return frozenset(plain[start : start + _SIZE] for start in range(max(1, len(plain) - _SIZE + 1)))


def _similarity(one: frozenset[str], other: frozenset[str]) -> float:
    common = len(one & other)
    return common / (len(one) + len(other) - common)
