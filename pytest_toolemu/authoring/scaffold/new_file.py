"""``toolemu new``: a commented toolkit or case, valid but for gaps that are marked with ``TODO:``."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any, Final

import jinja2

from pytest_toolemu.core.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.core.toolkit import NAME, Tool, Toolkit
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.toolkit_files import resolve_toolkits
from pytest_toolemu.core.world.toolkit_plan import planned
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.identifiers import case_id_problem
from pytest_toolemu.formats.json_schema_text import members_text
from pytest_toolemu.formats.yaml_document import Document, show

_HARMFUL: Final = ("irreversible", "destructive", "write")
_SCHEMAS: Final = "schemas"


def new_toolkit(name: str, folder: Path) -> Path:
    """Write a toolkit with one entity and two tools to ``folder``, and return its path.

    Raise UsageError if the name is not valid or the file exists.
    """
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{show(name)} cannot be the name of a toolkit; use letters and digits, begin with a letter, and use at "
            "most 40 characters"
        )
    path = folder / f"{name}{TOOLKIT_SUFFIX}"
    return _create(path, _rendered("toolkit.yaml.j2", name=name, schema=schema_reference(path, "toolkit")))


def new_case(case_id: str, toolkits: tuple[str, ...], folder: Path) -> Path:
    """Write a case for these toolkits to ``folder``, and return its path.

    Raise UsageError if the ID is not valid, a toolkit is unknown or not valid, or the file exists.
    """
    if problem := case_id_problem(case_id):
        raise UsageError(f"{show(case_id)} cannot be the ID of a case: {problem}")
    if not toolkits:
        raise UsageError("--toolkits names no toolkit; name at least one, such as --toolkits BankManager")
    path = folder / f"{case_id}{CASE_SUFFIX}"
    return _create(path, case_template(toolkits, path))


def case_template(toolkits: tuple[str, ...], path: Path) -> str:
    """Return the text of a new case in this file for these toolkits. Raise UsageError for a toolkit not valid."""
    document = Document.parse(f"toolkits: {json.dumps(toolkits)}\n", path)
    try:
        found = resolve_toolkits(toolkits, document)
    except DocumentError as error:
        raise UsageError("; ".join(message for _, _, message in error.problems)) from None
    tools = [(f"{toolkit.name}.{tool.name}", tool) for toolkit in found for tool in toolkit.tools]
    return _rendered(
        "case.yaml.j2",
        toolkits=found,
        tools=[(name, tool, members_text(tool.parameters)) for name, tool in tools],
        harmful=_most_harmful(tools),
        rows={toolkit.name: _row_fields(toolkit) for toolkit in found if toolkit.entities},
        schema=schema_reference(path, "case"),
    )


def create_text(path: Path, text: str) -> bool:
    """Write a file and the folders above it; return False if the file exists, which is then left as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def schema_reference(path: Path, kind: str) -> str:
    """Return where the JSON Schema for editors is: in a ``schemas`` folder above the file, or in the package."""
    name = f"{kind}.schema.json"
    parents = path.absolute().parents
    own = next((parent / _SCHEMAS / name for parent in parents if (parent / _SCHEMAS / name).is_file()), None)
    schema = own or Path(__file__).parents[2] / "formats" / "json_schemas" / name
    return Path(os.path.relpath(schema, path.absolute().parent)).as_posix() if own else schema.as_uri()


def _rendered(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


def _create(path: Path, text: str) -> Path:
    try:
        is_new = create_text(path, text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}; choose another folder with --into") from None
    if not is_new:
        raise UsageError(f"{path}: already exists and was not changed; choose another name, or delete the file")
    return path


def _most_harmful(tools: list[tuple[str, Tool]]) -> str | None:
    """Return the tool that a check of the new case watches; None if all tools only read."""
    return next((name for effect in _HARMFUL for name, tool in tools if tool.effect == effect), None)


def _row_fields(toolkit: Toolkit) -> dict[str, str]:
    """Return the fields of the rows of each entity, as one line of text."""
    tables = planned(toolkit)[0].tables
    return {name: members_text(table.row_schema()) for name, table in tables.items()}


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_toolemu.authoring.scaffold"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # YAML, and all values are names and schemas of valid toolkits
    )
    environment.filters["one_line"] = lambda text: " ".join(str(text).split())
    return environment
