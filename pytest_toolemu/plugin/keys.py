"""The keys under which the plugin stores its data on pytest's config and items.

The key of the services is in ``services``: modules that services are built from import this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_toolemu.core.case import ResolvedCase
    from pytest_toolemu.core.references import Trap
    from pytest_toolemu.emulators.world_stage import PlannedWorld
    from pytest_toolemu.plugin.session import ToolemuSession

SESSION: pytest.StashKey[ToolemuSession] = pytest.StashKey()
"""On the config: the state of the session in this process."""

RESOLVED_CASE: pytest.StashKey[ResolvedCase] = pytest.StashKey()
"""On every item that runs a case: the case with its toolkits."""

TRAP: pytest.StashKey[Trap] = pytest.StashKey()
"""On an item whose case is in a built world: the trap in it, which only the record of the run contains."""

PLANNED_WORLD: pytest.StashKey[PlannedWorld] = pytest.StashKey()
"""On an item whose world did not exist at collection. Until it is built, the case of the item has its own rows."""

RUN_TIMES: pytest.StashKey[tuple[float, float]] = pytest.StashKey()
"""On an item whose case has run: its start, in seconds since the epoch, and its duration in seconds."""

INI_MARKS: pytest.StashKey[tuple[str, ...]] = pytest.StashKey()
"""On the config: the lines of the marks that the project's own ini file declares."""
