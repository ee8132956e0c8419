"""Which items may run before their turn, and which of the project's fixtures must be set up for that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from pytest_toolemu.plugin.collection.item_agents import definition_of, is_external

# The components of a run that one fixture of the project may make for many items.
COMPONENTS = (
    "toolemu_agent",
    "toolemu_emulator",
    "toolemu_user",
    "toolemu_safety_evaluator",
    "toolemu_helpfulness_evaluator",
)
_NODES: dict[str, type[pytest.Collector]] = {"module": pytest.Module, "class": pytest.Class}


class FixtureKey(NamedTuple):
    """Identifies one value of one fixture."""

    name: str
    baseid: str
    """The node in which the fixture is defined."""
    param_index: int
    nodeid: str
    """The node for whose lifetime the value exists."""


def needed_fixtures(item: pytest.Function) -> dict[str, FixtureKey] | None:
    """Return the project's own fixtures that must be set up before the item can run, by name.

    Return None if the item must wait for its turn: a fixture is made for this item alone, or a mark may skip the item
    or change its outcome.
    """
    if any(item.get_closest_marker(name) for name in ("skip", "skipif", "xfail")):
        return None
    needed = {}
    for name in item.fixturenames:
        if is_external(item, name):
            continue
        definition = definition_of(item, name)
        is_shared = definition is not None and definition.scope != "function"
        if not is_shared or (name.startswith("toolemu_") and name not in COMPONENTS):
            return None
        needed[name] = _key(definition, _param_indices(item).get(name, 0), _lifetime(item, definition))
    return needed


class ActiveFixtures:
    """The project's fixtures that are set up now, and the items that may run because of them.

    ``before_teardown`` is called with the indices of the items that need a fixture which is about to be torn down.
    """

    def __init__(self) -> None:
        self.before_teardown: Callable[[Iterable[int]], None] = _ignore
        self._values: dict[FixtureKey, Any] = {}
        self._needs: dict[int, dict[str, FixtureKey]] = {}
        self._dependents: defaultdict[FixtureKey, set[int]] = defaultdict(set)
        self._candidates: set[int] = set()

    def add_item(self, index: int, needed: dict[str, FixtureKey]) -> None:
        """Add an item that may run as soon as the fixtures that it needs are set up."""
        self._needs[index] = needed
        for key in needed.values():
            self._dependents[key].add(index)
        self._candidates.add(index)

    def add_fixture(self, request: Any, definition: Any, value: Any) -> None:
        """Add a fixture that has just been set up. It is removed when pytest tears it down."""
        key = _key(definition, getattr(request, "param_index", 0), request.node)
        self._values[key] = value
        self._candidates |= self._dependents[key]
        # Finalizers run last in, first out: this one before the fixture's own.
        request.addfinalizer(lambda: self._remove_fixture(key))

    def take_ready(self) -> list[int]:
        """Return the items that have become ready since the last call."""
        candidates, self._candidates = self._candidates, set()
        return sorted(index for index in candidates if all(key in self._values for key in self._needs[index].values()))

    def values(self, index: int) -> dict[str, Any]:
        """Return the values of the fixtures that a ready item needs, by name."""
        return {name: self._values[key] for name, key in self._needs[index].items()}

    def _remove_fixture(self, key: FixtureKey) -> None:
        self._values.pop(key, None)
        self.before_teardown(self._dependents[key])


def _ignore(items: Iterable[int]) -> None:
    del items


def _param_indices(item: pytest.Function) -> dict[str, int]:
    return item.callspec.indices if hasattr(item, "callspec") else {}


def _key(definition: Any, param_index: int, node: pytest.Item | pytest.Collector) -> FixtureKey:
    return FixtureKey(definition.argname, definition.baseid, param_index, node.nodeid)


def _lifetime(item: pytest.Function, definition: Any) -> pytest.Item | pytest.Collector:
    """Return the node that ``request.node`` is in a fixture of this scope."""
    if definition.scope == "package":
        packages = (node for node in item.listchain() if isinstance(node, pytest.Package))
        return next((node for node in packages if node.nodeid == definition.baseid), item.session)
    kind = _NODES.get(definition.scope)
    if kind is None:
        return item.session
    return item.getparent(kind) or item.getparent(pytest.Module) or item.session
