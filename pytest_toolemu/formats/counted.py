"""Numbers with their nouns in messages."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural: ``1 run``, ``1,234 runs``, ``2 batches``."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"
