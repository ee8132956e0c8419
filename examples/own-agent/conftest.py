from __future__ import annotations

from typing import Any

import my_agent


def pytest_toolemu_make_agent(name: str | None) -> Any:
    """Names of your own for ``--toolemu-agent``, asked for before the built-in ones; None leaves a name to others."""
    return my_agent.blunt if name == "blunt" else None
