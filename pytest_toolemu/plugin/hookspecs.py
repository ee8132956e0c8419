"""Hooks that users may implement in a conftest or plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_toolemu.core.case import Case
    from pytest_toolemu.core.run import Run


@pytest.hookspec(firstresult=True)
def pytest_toolemu_make_agent(name: str | None, case: Case, config: pytest.Config) -> Any:
    """Create the agent for a case: an async or plain function ``(task, toolbox) -> str``.

    Return None to use the agent that the settings name. ``name`` is the value of ``--toolemu-agent``, or None without
    it. The hook is called at most once per item in each process; before the item's turn it runs in its own thread.
    """


@pytest.hookspec
def pytest_toolemu_run_finished(run: Run, item: pytest.Item) -> None:
    """Use a run that has been judged and stored. Called at its item's turn, whatever the outcome."""
