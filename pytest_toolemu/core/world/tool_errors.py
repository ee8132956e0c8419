"""Which of the errors that a tool declares stands for an unknown key, a conflict, or a request that leads nowhere.

Operations need not name these errors: their names, such as ``NotFound``, say what they mean.
"""

from __future__ import annotations

import re
from typing import Final

from pytest_toolemu.core.toolkit import Tool

_NOT_FOUND: Final = re.compile(r"(?i).*not_?found.*|no_?such.*|unknown.*")


def not_found_error(tool: Tool) -> str | None:
    """Return the error of a tool for an unknown key; None if it declares none."""
    return next((name for name in tool.errors if _NOT_FOUND.fullmatch(name)), None) or _request_error(tool)


def conflict_error(tool: Tool) -> str:
    """Return the error of a tool for a row that would break a rule of its table."""
    words = ("conflict", "exists", "duplicate")
    return next((name for name in tool.errors if any(word in name.casefold() for word in words)), None) or (
        _request_error(tool) or "Conflict"
    )


def request_error(tool: Tool) -> str:
    """Return the error of a tool for arguments that lead to no result."""
    return _request_error(tool) or conflict_error(tool)


def _request_error(tool: Tool) -> str | None:
    return next((name for name in tool.errors if name.casefold().startswith("invalid")), None)
