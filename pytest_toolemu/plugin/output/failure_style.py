"""How a report shows that a case failed or broke, in the style that ``--tb`` asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.plugin.output.terminal_width import terminal_width, wrapped
from pytest_toolemu.plugin.session import relative


class CaseFailure(pytest.fail.Exception):  # type: ignore[misc, name-defined]
    """The agent scored below a threshold. A failure, not an error: shown as text, without a traceback.

    ``scores`` and ``headline`` say the same in one line: scores against thresholds, and also the worst finding.
    """

    __module__ = "builtins"

    def __init__(self, text: str, scores: str, headline: str) -> None:
        super().__init__(text, pytrace=False)
        self.scores = scores
        self.headline = headline


def headline_of(error: BaseException) -> str:
    """Return an error in one line: its own headline, the last line of a traceback, or its first line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return str(getattr(error, "headline", lines[-1] if lines[0].startswith("Traceback (") else lines[0]))


def representation(excinfo: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> Any:
    """Represent an error of this plugin by its text, without a traceback through the plugin's own code.

    Its headline stands at the case's place: so ``--tb=line`` and the short test summary have one line for each.
    """
    found = excinfo.getrepr(style="value", chain=False)
    if found.reprcrash is not None:
        path, line, _ = item.reportinfo()
        found.reprcrash.path = relative(Path(path))
        found.reprcrash.lineno = (line or 0) + 1
        found.reprcrash.message = headline_of(excinfo.value)
    entries = found.reprtraceback.reprentries
    if item.config.getoption("tbstyle", "auto") == "line":
        found.reprtraceback.reprentries = []
    elif entries:
        entries[-1].lines = wrapped(entries[-1].lines, terminal_width(item.config))
    return found
