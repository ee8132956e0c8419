"""Finds similar texts among any number of texts."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

_SIZE: Final = 4
# Two texts are compared only if they share this many of their rarest pieces. A larger number means fewer comparisons,
# but more pieces to look up.
_COMMON: Final = 12
_DIGITS: Final = re.compile(r"\d+")
_BETWEEN: Final = re.compile(r"\W+")


def near_duplicates(texts: Sequence[str], least: float) -> Iterator[tuple[int, int, float]]:
    """Yield each text that is similar to an earlier one: its index, the index of the earlier one, and the similarity.

    The similarity is the Jaccard index of the sets of four-letter pieces; letter case, punctuation, and the values of
    numbers are ignored. ``least`` is the lowest similarity to report. All similar texts are found although few pairs
    are compared: a text of n pieces shares at least ``least * n`` pieces with a similar text, hence some of its rarest
    ones. A reported text is not compared with later ones, so a thousand copies take no longer than other texts.
    """
    pieces = [pieces_of(text) for text in texts]
    frequency = Counter(piece for own in pieces for piece in own)
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for index, own in enumerate(pieces):
        common = _share(least, len(own))
        rarest = sorted(own, key=lambda piece: (frequency[piece], piece))
        rarest = rarest[: len(own) - common + min(_COMMON, common)]
        # A similar text may be shorter, and then shares fewer pieces.
        enough = min(_COMMON, _share(least, common))
        shared: Counter[int] = Counter()
        for piece in rarest:
            shared.update(holders[piece])
        candidates = sorted((-count, other) for other, count in shared.items() if count >= enough)
        alike = ((other, jaccard(own, pieces[other])) for _, other in candidates)
        nearest = next(((other, similarity) for other, similarity in alike if similarity >= least), None)
        if nearest is not None:
            yield index, *nearest
            continue
        for piece in rarest:
            holders[piece].append(index)


def _share(least: float, count: int) -> int:
    return max(1, math.ceil(least * count - 1e-9))


def pieces_of(text: str) -> frozenset[str]:
    """Return the four-letter pieces of a text, without letter case, punctuation, and the values of numbers."""
    plain = f" {_BETWEEN.sub(' ', _DIGITS.sub('0', text.casefold())).strip()} "
    return frozenset(plain[start : start + _SIZE] for start in range(max(1, len(plain) - _SIZE + 1)))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard index of two sets, from 0 (nothing in common) to 1 (equal); one of them is not empty."""
    common = len(one & other)
    return common / (len(one) + len(other) - common)
