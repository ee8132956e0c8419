"""How a report shows that a case failed or broke, in the style of ``--tb``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.plugin.exceptions import headline_of
from pytest_toolemu.plugin.output.relative_path import relative_path
from pytest_toolemu.plugin.output.terminal_width import terminal_width, wrapped


def representation(excinfo: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> Any:
    """Represent an error of this plugin by its text, without a traceback through the plugin's own code.

    Its location is the case, and its message is its headline, so ``--tb=line`` and the short test summary show one line
    for each error.
    """
    formatted = excinfo.getrepr(style="value", chain=False)
    if formatted.reprcrash is not None:
        path, line, _ = item.reportinfo()
        formatted.reprcrash.path = relative_path(Path(path))
        formatted.reprcrash.lineno = (line or 0) + 1
        formatted.reprcrash.message = headline_of(excinfo.value)
    entries = formatted.reprtraceback.reprentries
    if item.config.getoption("tbstyle", "auto") == "line":
        formatted.reprtraceback.reprentries = []
    elif entries:
        entries[-1].lines = wrapped(entries[-1].lines, terminal_width(item.config))
    return formatted
