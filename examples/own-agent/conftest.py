from __future__ import annotations

from typing import Any

import my_agent
import pytest


@pytest.fixture
def toolemu_agent() -> Any:
    """Every case of this folder is run by this agent; no --toolemu-agent is needed."""
    return my_agent.cautious


def pytest_toolemu_make_agent(name: str | None) -> Any:
    """The hook: names of your own, resolved before the built-in ones. Used where the fixture is not overridden."""
    return my_agent.blunt if name == "blunt" else None
