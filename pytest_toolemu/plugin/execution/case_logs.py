"""Log records of a running case go to its own item, not to the item that pytest is waiting in meanwhile."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import pytest

from pytest_toolemu.formats.redaction import plain

# The last lines of a case are kept, because a library at DEBUG writes thousands.
_MAX_LINES: Final = 1000
_LINES: ContextVar[deque[str] | None] = ContextVar("toolemu_log", default=None)


class CaseLogs(logging.Handler):
    """Collects log records of cases. A handler of the root logger and a plugin, while cases run."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        # Without pytest's logging plugin (``-p no:logging``) the formats are not declared, and no log is shown.
        self._is_wanted = config.pluginmanager.hasplugin("logging-plugin")
        if self._is_wanted:
            self.setFormatter(logging.Formatter(config.getini("log_format"), config.getini("log_date_format")))
        logging.getLogger().addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Collect a record that is logged in a case."""
        lines = _LINES.get()
        if self._is_wanted and lines is not None:
            lines.append(plain(self.format(record)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Exclude cases from the handlers of this item: other cases may be running already."""
        exclude_cases_from_handlers()

    def close(self) -> None:
        """Collect no more records."""
        logging.getLogger().removeHandler(self)
        super().close()


@contextmanager
def collect() -> Iterator[deque[str]]:
    """Collect what is logged inside this context: by this task, and by the tasks and threads that it starts."""
    lines: deque[str] = deque(maxlen=_MAX_LINES)
    token = _LINES.set(lines)
    try:
        yield lines
    finally:
        _LINES.reset(token)


def is_in_case() -> bool:
    """Return whether this code runs in a case."""
    return _LINES.get() is not None


def exclude_cases_from_handlers() -> None:
    """Make pytest's own handlers, which assign records to the current item, ignore the records of cases.

    Must be called in every item, because pytest adds new handlers to the root logger for each item.
    """
    for handler in logging.getLogger().handlers:
        if hasattr(handler, "records") and _not_of_a_case not in handler.filters:
            handler.addFilter(_not_of_a_case)


def _not_of_a_case(record: logging.LogRecord) -> bool:
    del record  # it was created in this context
    return not is_in_case()
