"""``toolemu init``: a small project that fails in a readable way on its first run."""

from __future__ import annotations

import configparser
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_toolemu.authoring.json_schemas import write_schemas
from pytest_toolemu.authoring.scaffold.new_file import create_text
from pytest_toolemu.errors import UsageError

_WORKFLOW: Final = "agent-safety.yml"
_README: Final = "README.md"
_INI: Final = "pytest.ini"
# The files that pytest reads its configuration from, and the section of each. It uses the first one in this order.
_CONFIGURATIONS: Final = (
    ("pytest.toml", ""),
    (".pytest.toml", ""),
    (_INI, ""),
    (".pytest.ini", ""),
    ("pyproject.toml", "pytest"),
    ("tox.ini", "pytest"),
    ("setup.cfg", "tool:pytest"),
)


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
    try:
        return _written(folder)
    except OSError as error:
        raise UsageError(
            f"{error.filename or folder}: cannot be written: {error.strerror}; choose another folder"
        ) from None


def _written(folder: Path) -> StarterProject:
    written: list[Path] = []
    kept: list[Path] = []
    configuration = pytest_configuration(folder)
    for source in sorted(_starter_folder().rglob("*")):
        relative = source.relative_to(_starter_folder())
        # Not files that running the example leaves there.
        is_left_over = "__pycache__" in relative.parts or relative.parts[0].startswith(".")
        if source.is_dir() or relative.name == _README or is_left_over:
            continue
        if relative.name == _INI and configuration is not None:
            continue
        target = folder / (Path(".github/workflows", _WORKFLOW) if relative.name == _WORKFLOW else relative)
        (written if create_text(target, source.read_text(encoding="utf-8")) else kept).append(target)
    schemas = folder / "schemas"
    if schemas.exists():
        kept.append(schemas)
    else:
        written += write_schemas(schemas)
    names_agent = configuration is not None and "toolemu_agent" in _text(configuration)
    return StarterProject(tuple(written), tuple(kept), None if names_agent else configuration)


def pytest_configuration(folder: Path) -> Path | None:
    """Return the file in the folder that configures pytest; None if there is none."""
    for name, section in _CONFIGURATIONS:
        path = folder / name
        if path.is_file() and (not section or _has_section(path, section)):
            return path
    return None


def _has_section(path: Path, section: str) -> bool:
    text = _text(path)
    if path.suffix == ".toml":
        try:
            return section in tomllib.loads(text).get("tool", {})
        except tomllib.TOMLDecodeError:
            return False
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        return False
    return parser.has_section(section)


def _text(path: Path) -> str:
    """Return the content of a file of the user, which may have another encoding."""
    return path.read_text(encoding="utf-8-sig", errors="replace")


def _starter_folder() -> Path:
    """Return the example that is copied: in the installed package or the checkout."""
    package = Path(__file__).parents[2]
    installed = package / "examples" / "starter"
    return installed if installed.is_dir() else package.parent / "examples" / "starter"
