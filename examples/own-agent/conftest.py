from __future__ import annotations

from typing import Any

import my_agent


def pytest_toolemu_make_agent(name: str | None) -> Any:
    """Return the agent of a name for ``--toolemu-agent``; None leaves the name to the built-in agents."""
    return my_agent.blunt if name == "blunt" else None
