"""Which items may be run before their turn, and what fixtures of the project's they need to be up for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pytest_toolemu.plugin.collection.variants import is_foreign

Key = tuple[str, str, int, str]
"""One value of one fixture: its name, where it is defined, the index of its parameter, and the node it lives for."""

# The parts of a run that a fixture of the project's may make for many items at once.
PARTS = ("toolemu_agent", "toolemu_emulator", "toolemu_safety_evaluator", "toolemu_helpfulness_evaluator")
_NODES: dict[str, type[pytest.Collector]] = {"module": pytest.Module, "class": pytest.Class}


def needs(item: pytest.Function) -> dict[str, Key] | None:
    """The project's own fixtures that must be up before the item can run, by name; None if it has to wait its turn.

    It has to if a fixture is made for it alone, or if a mark may skip it or turn its outcome.
    """
    if any(item.get_closest_marker(name) for name in ("skip", "skipif", "xfail")):
        return None
    found = {}
    for name in item.fixturenames:
        if is_foreign(item, name):
            continue
        definition = _definition(item, name)
        wide = definition is not None and definition.scope != "function"
        if not wide or (name.startswith("toolemu_") and name not in PARTS):
            return None
        found[name] = _key(definition, _parameters(item).get(name, 0), _life(item, definition))
    return found


class ActiveFixtures:
    """The project's fixtures that are up now, and which groups of items that makes ready.

    ``leaving`` is called with the items whose fixture is about to be torn down, before it is.
    """

    def __init__(self) -> None:
        self.leaving: Callable[[Iterable[int]], None] = _nobody
        self._values: dict[Key, Any] = {}
        self._needs: dict[int, dict[str, Key]] = {}
        self._with: defaultdict[Key, set[int]] = defaultdict(set)
        self._fresh: set[int] = set()

    def add(self, index: int, needed: dict[str, Key]) -> None:
        """An item that may be run as soon as what it needs is up."""
        self._needs[index] = needed
        for key in needed.values():
            self._with[key].add(index)
        self._fresh.add(index)

    def up(self, request: Any, definition: Any, value: Any) -> None:
        """A fixture has been set up; hears of its end by itself."""
        key = _key(definition, getattr(request, "param_index", 0), request.node)
        self._values[key] = value
        self._fresh |= self._with[key]
        # Finalizers run last in, first out: this one before the fixture's own.
        request.addfinalizer(lambda: self._down(key))

    def ready(self) -> list[int]:
        """Items that have become ready since the last call."""
        fresh, self._fresh = self._fresh, set()
        return sorted(index for index in fresh if all(key in self._values for key in self._needs[index].values()))

    def values(self, index: int) -> dict[str, Any]:
        """What the fixtures returned that a ready item needs, by name."""
        return {name: self._values[key] for name, key in self._needs[index].items()}

    def _down(self, key: Key) -> None:
        self._values.pop(key, None)
        self.leaving(self._with[key])


def _nobody(items: Iterable[int]) -> None:
    del items


def _definition(item: pytest.Function, name: str) -> Any:
    """The fixture that an item gets under this name; pytest has no public way to it."""
    found: Any = getattr(item, "_fixtureinfo", None)
    known = found.name2fixturedefs.get(name) if found else None
    return known[-1] if known else None


def _parameters(item: pytest.Function) -> dict[str, int]:
    return item.callspec.indices if hasattr(item, "callspec") else {}


def _key(definition: Any, index: int, node: pytest.Item | pytest.Collector) -> Key:
    return definition.argname, definition.baseid, index, node.nodeid


def _life(item: pytest.Function, definition: Any) -> pytest.Item | pytest.Collector:
    """The node that ``request.node`` is in a fixture of this scope."""
    if definition.scope == "package":
        packages = (node for node in item.listchain() if isinstance(node, pytest.Package))
        return next((node for node in packages if node.nodeid == definition.baseid), item.session)
    kind = _NODES.get(definition.scope)
    if kind is None:
        return item.session
    return item.getparent(kind) or item.getparent(pytest.Module) or item.session
