"""Log records of cases in flight go to their own items, not to whichever item is waiting when they are made."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import pytest

from pytest_toolemu.formats.redaction import plain

# The last lines of a case are kept: a library at DEBUG writes thousands.
_MOST: Final = 1000
_LINES: ContextVar[deque[str] | None] = ContextVar("toolemu_log", default=None)


class CaseLogs(logging.Handler):
    """On the root logger while cases are in flight; a plugin, as every item has pytest's own handlers put there too."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        # Without pytest's logging plugin (``-p no:logging``) nobody has declared the formats, or wants to see a log.
        self._is_wanted = config.pluginmanager.hasplugin("logging-plugin")
        if self._is_wanted:
            self.setFormatter(logging.Formatter(config.getini("log_format"), config.getini("log_date_format")))
        logging.getLogger().addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what is logged in a case."""
        lines = _LINES.get()
        if self._is_wanted and lines is not None:
            lines.append(plain(self.format(record)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Also before the first item waits for its case: others may be in flight already."""
        keep_out()

    def close(self) -> None:
        """Keep no more."""
        logging.getLogger().removeHandler(self)
        super().close()


@contextmanager
def kept() -> Iterator[deque[str]]:
    """What is logged inside, by this task, the tasks and the threads that it starts."""
    lines: deque[str] = deque(maxlen=_MOST)
    token = _LINES.set(lines)
    try:
        yield lines
    finally:
        _LINES.reset(token)


def is_in_case() -> bool:
    """Tell whether this code runs in a case in flight."""
    return _LINES.get() is not None


def keep_out() -> None:
    """Have pytest's own handlers that file records under the item on stage pass over those of cases.

    To be called in every item: pytest puts its handlers on the root logger for each.
    """
    for handler in logging.getLogger().handlers:
        if hasattr(handler, "records") and _not_of_a_case not in handler.filters:
            handler.addFilter(_not_of_a_case)


def _not_of_a_case(record: logging.LogRecord) -> bool:
    del record  # made in this very context
    return not is_in_case()
