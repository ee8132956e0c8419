"""Files to start from, without a model: ``toolemu init`` and ``toolemu new``."""

from __future__ import annotations

import functools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jinja2

from pytest_toolemu.authoring.json_schemas import FOLDER, write_schemas
from pytest_toolemu.core.case import SUFFIX as CASE_SUFFIX
from pytest_toolemu.core.case_loading import resolve_toolkits
from pytest_toolemu.core.toolkit import NAME, Toolkit
from pytest_toolemu.core.toolkit import SUFFIX as TOOLKIT_SUFFIX
from pytest_toolemu.core.world.toolkit_plan import planned
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.file_access import write_for_user
from pytest_toolemu.formats.identifiers import case_id_problem
from pytest_toolemu.formats.json_schema import members_text
from pytest_toolemu.formats.yaml_document import Document, show

_WORKFLOW: Final = "agent-safety.yml"
_README: Final = "README.md"
_INI: Final = "pytest.ini"
# The files that pytest reads its configuration from, and the section of each. It uses the first one in this order.
_CONFIGURATIONS: Final = {
    "pytest.toml": "",
    ".pytest.toml": "",
    _INI: "",
    ".pytest.ini": "",
    "pyproject.toml": r"^\[tool\.pytest\b",
    "tox.ini": r"^\[pytest\]",
    "setup.cfg": r"^\[tool:pytest\]",
}
_HARMFUL: Final = ("irreversible", "destructive", "write")


@dataclass(frozen=True)
class StarterProject:
    """What ``toolemu init`` did: the files that it wrote and those that it kept.

    ``configuration`` is the file that already configures pytest, but names no agent, so that the user has to; None if
    there is no such file.
    """

    written: tuple[Path, ...]
    kept: tuple[Path, ...]
    configuration: Path | None


def write_starter(folder: Path) -> StarterProject:
    """Write the files of the starter project below the folder. A file that exists is kept.

    Raise UsageError if a file cannot be written.
    """
    written: list[Path] = []
    kept: list[Path] = []
    files = {folder / name: section for name, section in _CONFIGURATIONS.items() if (folder / name).is_file()}
    # The file that configures pytest.
    configuration = next((path for path, part in files.items() if re.search(part, _text(path), re.MULTILINE)), None)
    for source in sorted(_starter_folder().rglob("*")):
        relative = source.relative_to(_starter_folder())
        # Not files that running the example leaves there.
        is_left_over = "__pycache__" in relative.parts or relative.parts[0].startswith(".")
        is_configured = relative.name == _INI and configuration is not None
        if source.is_dir() or relative.name == _README or is_left_over or is_configured:
            continue
        target = folder / (Path(".github/workflows", _WORKFLOW) if relative.name == _WORKFLOW else relative)
        is_new = create_text(target, source.read_text(encoding="utf-8"), "choose another folder")
        (written if is_new else kept).append(target)
    schemas = folder / "schemas"
    if schemas.exists():
        kept.append(schemas)
    else:
        written += write_schemas(schemas)
    names_agent = configuration is not None and "toolemu_agent" in _text(configuration)
    return StarterProject(tuple(written), tuple(kept), None if names_agent else configuration)


def _text(path: Path) -> str:
    """Return the content of a file of the user, which may have another encoding."""
    return path.read_text(encoding="utf-8-sig", errors="replace")


def _starter_folder() -> Path:
    """Return the example that is copied: in the installed package or the checkout."""
    package = Path(__file__).parents[1]
    installed = package / "examples" / "starter"
    return installed if installed.is_dir() else package.parent / "examples" / "starter"


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
    return _create(path, rendered("toolkit.yaml.j2", name=name, schema=schema_reference(path, "toolkit")))


def new_case(case_id: str, toolkits: tuple[str, ...], folder: Path) -> Path:
    """Write a case for these toolkits to ``folder``, and return its path.

    Raise UsageError if the ID is not valid, a toolkit is unknown or not valid, or the file exists.
    """
    if problem := case_id_problem(case_id):
        raise UsageError(f"{show(case_id)} cannot be the ID of a case: {problem}")
    path = folder / f"{case_id}{CASE_SUFFIX}"
    return _create(path, case_template(toolkits, path))


def named_toolkits(names: tuple[str, ...], path: Path) -> tuple[Toolkit, ...]:
    """Return the toolkits that a case in this file finds. Raise UsageError if none is named, or one is not valid."""
    if not names:
        raise UsageError("--toolkits names no toolkit; name at least one, such as --toolkits BankManager")
    try:
        return resolve_toolkits(names, Document.parse(f"toolkits: {json.dumps(names)}\n", path))
    except DocumentError as error:
        raise UsageError("; ".join(message for _, _, message in error.problems)) from None


def case_template(toolkits: tuple[str, ...], path: Path) -> str:
    """Return the text of a new case in this file for these toolkits. Raise UsageError for a toolkit not valid."""
    found = named_toolkits(toolkits, path)
    tools = [(f"{toolkit.name}.{tool.name}", tool) for toolkit in found for tool in toolkit.tools]
    return rendered(
        "case.yaml.j2",
        toolkits=found,
        tools=[(name, tool, members_text(tool.parameters)) for name, tool in tools],
        harmful=next((name for effect in _HARMFUL for name, tool in tools if tool.effect == effect), None),
        rows={
            toolkit.name: {name: members_text(table.row_schema()) for name, table in planned(toolkit)[0].tables.items()}
            for toolkit in found
            if toolkit.entities
        },
        schema=schema_reference(path, "case"),
    )


def create_text(path: Path, text: str, remedy: str) -> bool:
    """Write a file and the folders above it; return False if the file exists, which is then left as it is.

    Raise UsageError with the remedy if it cannot be written.
    """
    if path.exists():
        return False
    write_for_user(path, text, remedy)
    return True


def schema_reference(path: Path, kind: str) -> str:
    """Return where the JSON Schema for editors is, from the file: in ``schemas`` above it, or in the package."""
    name = f"{kind}.schema.json"
    parents = path.absolute().parents
    own = next((parent / "schemas" / name for parent in parents if (parent / "schemas" / name).is_file()), None)
    return Path(os.path.relpath(own or FOLDER / name, path.absolute().parent)).as_posix()


def _create(path: Path, text: str) -> Path:
    if not create_text(path, text, "choose another folder with --into"):
        raise UsageError(f"{path}: already exists and was not changed; choose another name, or delete the file")
    return path


def rendered(template: str, **values: Any) -> str:
    """Return the text of a template of this package; values are not escaped."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_toolemu.authoring"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # YAML, and all values are names and schemas of valid toolkits
    )
    environment.filters["one_line"] = lambda text: " ".join(str(text).split())
    return environment
