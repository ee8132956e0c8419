"""Our declarations for ToolEmu's official toolkits, merged into the toolkits that the importer makes of them.

ToolEmu's files are not part of this repository: they are read from the folder that ``tests.authoring.originals`` names.
``declarations/`` holds a file for each toolkit, with the entities and the operations that its tools have here.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from pytest_toolemu.authoring.importers.sources import Notes
from pytest_toolemu.authoring.importers.toolemu import toolkit_of
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.world.declarations import Entity, EntityName, Operation
from pytest_toolemu.core.world.toolkit_plan import planned
from pytest_toolemu.formats.validation_messages import Loc, closest
from pytest_toolemu.formats.yaml_document import Document, Record
from tests.authoring.originals import DATA

DECLARATIONS: Final = Path(__file__).parent / "declarations"
FILES: Final = tuple(sorted(DECLARATIONS.glob("*.yaml")))


class Declarations(Record):
    """What a file declares about the data of a toolkit that is defined elsewhere."""

    entities: dict[EntityName, Entity] = {}
    operations: dict[str, Operation] = Field(min_length=1)


@functools.cache
def originals() -> dict[str, dict[str, Any]]:
    """Return ToolEmu's toolkits by name, as its file has them."""
    toolkits = json.loads((DATA / "all_toolkits.json").read_text(encoding="utf-8"))
    return {toolkit["toolkit"]: toolkit for toolkit in toolkits}


@functools.cache
def official_toolkit(name: str) -> Toolkit:
    """Return an official toolkit with our declarations; without them if there is no file.

    Raise DocumentError with the position of each problem of the declarations.
    """
    notes: Notes = {}
    content = toolkit_of(originals()[name], notes)
    path = DECLARATIONS / f"{name}.yaml"
    if path.is_file():
        _merge(content, Document.read(path))
    return Toolkit.model_validate_json(json.dumps(content))


def _merge(content: dict[str, Any], document: Document) -> None:
    declarations = document.build(Declarations)
    tools = {tool["name"]: tool for tool in content["tools"]}
    if unknown := declarations.operations.keys() - tools.keys():
        raise document.error(
            [(("operations", name), f"no tool {name!r}{closest(name, tools)}") for name in sorted(unknown)]
        )
    content["entities"] = document.value.get("entities", {})
    for name, operation in document.value["operations"].items():
        tools[name]["operation"] = operation
    toolkit = Toolkit.model_validate_json(json.dumps(content))
    if problems := planned(toolkit)[1]:
        raise document.error([(_location(loc, toolkit), message) for loc, message in problems])


def _location(loc: Loc, toolkit: Toolkit) -> Loc:
    """Return the location in the file of declarations of a location in the toolkit."""
    if loc[:1] != ("tools",):
        return loc
    return ("operations", toolkit.tools[int(loc[1])].name, *loc[3:])


def undeclared_tools() -> Iterator[str]:
    """Yield ``Toolkit.Tool`` for each official tool without an operation."""
    for name in originals():
        toolkit = official_toolkit(name)
        yield from (f"{name}.{tool.name}" for tool in toolkit.tools if tool.operation is None)
