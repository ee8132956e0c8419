"""Truncation of text for one line of output."""

from __future__ import annotations


def truncated(text: str, limit: int) -> str:
    """Return text of at most ``limit`` characters; an ellipsis replaces the end of a longer text."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
