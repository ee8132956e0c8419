"""Values of settings as they are shown to people."""

from __future__ import annotations


def setting_text(value: object) -> str:
    """Return the value of a setting as text; several values in one line."""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
