"""Damage files at random, in the same way for the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Final

# Replacements for any value, such as numbers too large for a float, for 64 bits, for a date or for a list.
_VALUES: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 10**9, 10**30, 1e300, -0.5, "", "x", "../../x", "a\0b", "\u202e", "y" * 5000, [], {}, [[]],
    ["x"], [None], {"x": 1}, [1e300], "1e999",
)  # fmt: skip


def damaged(text: str, seed: int) -> bytes:
    """Return a JSON text with one to three values replaced or removed, or text that is no longer JSON or UTF-8."""
    chance = random.Random(seed)
    if seed % 7 == 0:
        return _as_bytes(text, chance)
    content = json.loads(text)
    for _ in range(chance.randint(1, 3)):
        holder, key = chance.choice(list(_places(content)) or [({"": content}, "")])
        if chance.random() < 0.25:
            del holder[key]
        else:
            holder[key] = chance.choice(_VALUES)
    # Records are written with one line per value.
    return json.dumps(content, indent=1).replace('"1e999"', "1e999").encode()


def _as_bytes(text: str, chance: random.Random) -> bytes:
    raw = text.encode()
    place = chance.randrange(len(raw))
    return chance.choice(
        [
            raw[:place],
            raw[:place] + b"\xff\xfe" + raw[place:],
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"",
            b"null",
            raw.replace(b"0", b"9" * 5000, 1),
            raw + b"}",
        ]
    )


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield value, key
        yield from _places(member)
