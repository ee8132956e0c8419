"""Hooks that users may implement in a conftest or plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_toolemu.core.case import Case
    from pytest_toolemu.core.run import Run


@pytest.hookspec(firstresult=True)
def pytest_toolemu_make_agent(name: str | None, case: Case, config: pytest.Config) -> Any:
    """The agent for a case: an async or plain function ``(task, toolbox) -> str``; None to leave it to the settings.

    ``name`` is what ``--toolemu-agent`` says, None without it. The hook is called at most once a case in each process,
    maybe before its turn, and then in a thread of its own.
    """


@pytest.hookspec
def pytest_toolemu_run_finished(run: Run, item: pytest.Item) -> None:
    """A case has been run, judged and stored; called at its item's turn, whatever the outcome."""
