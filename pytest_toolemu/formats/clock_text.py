"""Durations as people read them on a clock."""

from __future__ import annotations


def clock_text(seconds: float) -> str:
    """Return a duration of at least 0 seconds as ``0:48``, ``12:05``, or ``1:02:03``; fractions are cut off."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
