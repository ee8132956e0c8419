"""Finds and reads the files of toolkits."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.core.toolkit import NAME, SUFFIX, Toolkit, benchmark_folder, provider_name
from pytest_toolemu.core.world.database import require_sqlite
from pytest_toolemu.core.world.toolkit_plan import declaration_problems_in_file
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.json_schema import unknown_keywords
from pytest_toolemu.formats.yaml_document import Document, Loc, closest, show

_NAME_RULE: Final = "use letters and digits, begin with a letter, and use at most 40 characters"


# Drafts, and the suite into which they move; None while no draft is read.
_DESTINATION: ContextVar[tuple[Path, Path] | None] = ContextVar("_DESTINATION", default=None)


def load_toolkit(path: Path) -> Toolkit:
    """Return the toolkit in a file, which is read once per process. Raise DocumentError if it is not valid.

    The toolkit's name must equal the file name without the suffix, as cases find a toolkit by its file name.
    """
    stat = path.stat()
    return _load(path, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=1024)
def _load(path: Path, _modified: int, _size: int) -> Toolkit:
    document = Document.read(path)
    toolkit = document.build(Toolkit)
    expected = path.name.removesuffix(SUFFIX)
    if toolkit.name != expected:
        message = f"the toolkit is named {toolkit.name!r}, its file {path.name!r}; give both the same name"
        raise document.error([(("name",), message)])
    problems = list(_unknown_keywords(toolkit))
    if toolkit.is_declared:
        require_sqlite()
        problems += declaration_problems_in_file(toolkit)
    if problems:
        raise document.error(problems)
    return toolkit


def _unknown_keywords(toolkit: Toolkit) -> Iterator[tuple[Loc, str]]:
    """Yield the unknown keywords of all schemas.

    Only files are checked: toolkits in records of earlier versions may contain some.
    """
    for index, tool in enumerate(toolkit.tools):
        schemas: dict[str, dict[str, Any]] = {"parameters": tool.parameters, "returns": tool.returns}
        for part, schema in schemas.items():
            for loc, message in unknown_keywords(schema):
                yield ("tools", index, part, *loc), f"{tool.name}: {message}"
    for name, entity in toolkit.entities.items():
        for field, schema in entity.fields.items():
            for loc, message in unknown_keywords(schema):
                yield ("entities", name, "fields", field, *loc), f"{field}: {message}"


def toolkit_folders(folder: Path) -> tuple[Path, ...]:
    """Return the folders in which a case in ``folder`` looks for toolkits.

    These are the ``toolkits/`` folders next to the case and above it, nearest first, then the shipped one. Drafts look
    in those of their suite after their own, see ``drafts_move_to``.
    """
    destination = _DESTINATION.get()
    if destination is None or destination[0] not in (folder, *folder.parents):
        return _toolkit_folders(folder)
    drafts, suite = destination
    above = _toolkit_folders(folder)
    own = [where for where in above if drafts in where.parents]
    return tuple(dict.fromkeys([*own, *_toolkit_folders(suite / "cases"), *above]))


@functools.lru_cache(maxsize=1024)
def _toolkit_folders(folder: Path) -> tuple[Path, ...]:
    own = [parent / "toolkits" for parent in (folder, *folder.parents) if (parent / "toolkits").is_dir()]
    shipped = benchmark_folder() / "toolkits"
    return tuple(dict.fromkeys([*own, shipped]))


def forget_toolkit_folders() -> None:
    """Search for folders of toolkits again, because there may be a new one."""
    _toolkit_folders.cache_clear()


@contextmanager
def drafts_move_to(suite: Path, drafts: Path) -> Iterator[None]:
    """Let cases below ``drafts`` use the toolkits that they will find in the suite, which may be anywhere.

    This is so for all that is read within the context, also in its threads and tasks.
    """
    token = _DESTINATION.set((drafts.resolve(), suite.resolve()))
    try:
        yield
    finally:
        _DESTINATION.reset(token)


def find_toolkit(name: str, folder: Path) -> Path | None:
    """Return the nearest file that defines the toolkit, for a case in ``folder``; None if there is none."""
    candidates = (where / f"{name}{SUFFIX}" for where in toolkit_folders(folder))
    return next((path for path in candidates if path.is_file()), None)


def known_toolkits(folder: Path) -> set[str]:
    """Return the names of all toolkits that a case in ``folder`` can use."""
    return {path.name.removesuffix(SUFFIX) for where in toolkit_folders(folder) for path in where.glob(f"*{SUFFIX}")}


def resolve_toolkits(names: tuple[str, ...], document: Document) -> tuple[Toolkit, ...]:
    """Return the toolkits that a case names.

    Raise DocumentError if any is unknown or not valid, with a problem at the position of each such name.
    """
    folder = document.path.resolve().parent
    toolkits: list[Toolkit] = []
    problems: list[tuple[Loc, str]] = []
    for index, name in enumerate(names):
        if not NAME.fullmatch(name):
            problems.append((("toolkits", index), f"{show(name)} cannot be the name of a toolkit; {_NAME_RULE}"))
            continue
        path = find_toolkit(name, folder)
        if path is None:
            problems.append((("toolkits", index), f"unknown toolkit {name!r}{closest(name, known_toolkits(folder))}"))
            continue
        try:
            toolkits.append(load_toolkit(path))
        except DocumentError as error:
            problems.append((("toolkits", index), f"the toolkit {name!r} is not valid:\n{error}"))
    if not problems:
        problems += [(("toolkits", index), message) for index, message in _shared_names(toolkits)]
    if problems:
        raise document.error(problems)
    return tuple(toolkits)


def _shared_names(toolkits: list[Toolkit]) -> Iterator[tuple[int, str]]:
    """Yield the number of each toolkit that has a tool with the same name for agents as an earlier toolkit."""
    owners: dict[str, str] = {}
    for index, toolkit in enumerate(toolkits):
        for tool in toolkit.tools:
            name = toolkit.callable_name(tool)
            owner = owners.setdefault(provider_name(name), toolkit.name)
            if owner != toolkit.name:
                yield (
                    index,
                    f"agents would call a tool of {owner} and a tool of {toolkit.name} by the name {name!r}; "
                    "change 'call_as' of one of them",
                )
