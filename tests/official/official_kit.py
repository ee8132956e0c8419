"""A world of one official toolkit, as tests call its tools."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pytest_toolemu.core.case import User
from pytest_toolemu.core.world.toolkit_plan import plan_of
from pytest_toolemu.core.world.world import World
from pytest_toolemu.core.world.world_state import WorldBeginning
from pytest_toolemu.formats.json_schema import violations
from tests.official.declared_toolkits import official_toolkit

Json = dict[str, Any]
NOW = datetime(2022, 2, 22, 10, 0, tzinfo=UTC)
USER = User(name="Ada", email="ada@example.org")


class Kit:
    """The world of one official toolkit, whose results are checked against their schemas."""

    def __init__(self, name: str, **rows: list[Json]) -> None:
        self._name = name
        self._plan = plan_of(official_toolkit(name))
        self._world = World(
            WorldBeginning({name: self._plan}, {name: rows}), ids={}, user=USER, now=NOW, seed="official"
        )

    def __call__(self, tool: str, **arguments: Any) -> Json:
        content = self._world.call(f"{self._name}.{tool}", arguments, 0)
        assert "error" in content or violations(self._plan.plans[tool].tool.returns, content) == []
        return content

    def rows(self, entity: str) -> list[Json]:
        return list(self._world.rows()[self._name][entity])
