"""Log records of a running case go to its own item, not to the item that pytest is waiting in meanwhile."""

from __future__ import annotations

import logging

import pytest

from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.plugin.execution.case_output import CURRENT, is_in_case


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
        output = CURRENT.get()
        if self._is_wanted and output is not None:
            output.log.append(plain(self.format(record)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Exclude cases from the handlers of this item: other cases may be running already."""
        exclude_cases_from_handlers()

    def close(self) -> None:
        """Collect no more records."""
        logging.getLogger().removeHandler(self)
        super().close()


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
