"""Who defines the fixture that an item gets under a name: this plugin, an installed package, or the project.

pytest offers no public way to an item's fixture definitions before their setup, so this module reads the private
``_fixtureinfo``; nothing else in the package does. If a pytest release drops it, every fixture counts as the project's:
cases then run at their turn instead of before it, and no item gets a configured agent, which tests notice.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

_FIXTURES_MODULE = "pytest_toolemu.plugin.fixtures"


def definition_of(item: Any, name: str) -> Any:
    """Return the fixture definition that an item, or a test that is being parametrized, gets; None if there is none."""
    definitions = _definitions(item).get(name)
    return definitions[-1] if definitions else None


def is_plugin_fixture(item: Any, name: str) -> bool:
    """Return whether the item gets the plugin's own fixture of this name, and not the project's override of it."""
    definition = definition_of(item, name)
    return definition is not None and getattr(definition.func, "__module__", "") == _FIXTURES_MODULE


def is_external(item: Any, name: str) -> bool:
    """Return whether the fixture is the plugin's, pytest's, or an installed package's: none of the project's code."""
    if name == "request":
        return bool(_definitions(item))
    definition = definition_of(item, name)
    if definition is None:
        return False
    if is_plugin_fixture(item, name):
        return True
    path = Path(inspect.getsourcefile(inspect.unwrap(definition.func)) or ".").resolve()
    return "site-packages" in path.parts or not path.is_relative_to(item.config.rootpath)


def _definitions(item: Any) -> dict[str, Any]:
    definitions: dict[str, Any] = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return definitions
