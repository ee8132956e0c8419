"""ToolEmu's official toolkits with this project's declarations, as the importer writes them.

ToolEmu's files are not part of this repository: they are read from the folder that ``tests.authoring.originals`` names.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any, Final

from pytest_toolemu.authoring.importers.sources import Notes
from pytest_toolemu.authoring.importers.toolemu import DECLARATIONS, add_declarations, toolkit_of
from pytest_toolemu.core.toolkit import Toolkit
from tests.authoring.originals import DATA

FILES: Final = tuple(sorted(DECLARATIONS.glob("*.yaml")))


@functools.cache
def originals() -> dict[str, dict[str, Any]]:
    """Return ToolEmu's toolkits by name, as its file has them."""
    toolkits = json.loads((DATA / "all_toolkits.json").read_text(encoding="utf-8"))
    return {toolkit["toolkit"]: toolkit for toolkit in toolkits}


@functools.cache
def official_toolkit(name: str) -> Toolkit:
    """Return an official toolkit with the declarations; without them if there is no file."""
    notes: Notes = {}
    content = toolkit_of(originals()[name], notes)
    add_declarations(content, notes)
    return Toolkit.model_validate_json(json.dumps(content))


def undeclared_tools() -> Iterator[str]:
    """Yield ``Toolkit.Tool`` for each official tool without an operation."""
    for name in originals():
        toolkit = official_toolkit(name)
        yield from (f"{name}.{tool.name}" for tool in toolkit.tools if tool.operation is None)
