"""Log records of a running case go to its own item, not to the item that pytest is waiting in meanwhile."""

from __future__ import annotations

import logging

import pytest

from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.plugin.execution.captured_output.case_output import CURRENT, is_in_case


class CaseLogs(logging.Handler):
    """Collects log records of cases. A handler of the root logger while cases run."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        # Without pytest's logging plugin (``-p no:logging``) the formats are not declared, and no log is shown.
        plugin = config.pluginmanager.getplugin("logging-plugin")
        self._is_wanted = plugin is not None
        if plugin is not None:
            self.setFormatter(logging.Formatter(config.getini("log_format"), config.getini("log_date_format")))
            _exclude_cases(plugin)
        # First, because a thread that goes through the handlers skips one if pytest removes another before it.
        logging.getLogger().handlers.insert(0, self)

    def emit(self, record: logging.LogRecord) -> None:
        """Collect a record that is logged in a case."""
        output = CURRENT.get()
        if self._is_wanted and output is not None:
            output.log.append(visible(self.format(record)))

    def close(self) -> None:
        """Collect no more records."""
        logging.getLogger().removeHandler(self)
        super().close()


def _exclude_cases(plugin: object) -> None:
    """Make pytest's own handlers, which assign records to the current item, ignore the records of cases.

    pytest attaches them to the root logger in each phase of an item, when cases may be running already.
    """
    for handler in vars(plugin).values():
        if isinstance(handler, logging.Handler) and hasattr(handler, "records"):
            handler.addFilter(_not_of_a_case)


def _not_of_a_case(record: logging.LogRecord) -> bool:
    del record  # it was created in this context
    return not is_in_case()
