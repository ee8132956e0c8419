"""The tools that an agent may call. They are specified by JSON Schemas and never implemented."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.json_schema import schema_problem
from pytest_toolemu.formats.json_schema_keywords import unknown_keywords
from pytest_toolemu.formats.yaml_document import Document, Loc, Record, closest, show

Effect = Literal["read", "write", "destructive", "irreversible"]
"""What a call does: nothing; a change that can be undone; a loss; something that cannot be taken back."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,39}")
_NAME_RULE: Final = "use letters and digits, begin with a letter, and use at most 40 characters"
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*$", max_length=40)]
Text = Annotated[str, Field(min_length=1)]

SUFFIX: Final = ".toolkit.yaml"
# The longest function name that both OpenAI and Anthropic accept.
MAX_TOOL_NAME: Final = 64


class Tool(Record):
    """One function: JSON Schemas of its arguments and of its result, and the errors that it can return."""

    name: Name = Field(description="Name of the tool; agents call it as Toolkit_Tool")
    description: Text = Field(description="What the tool does, as the agent reads it")
    parameters: dict[str, Any] = Field(description="JSON Schema of the arguments; its type is object")
    returns: dict[str, Any] = Field(description="JSON Schema of the result; its type is object")
    errors: dict[Name, Text] = Field(
        default={}, description="Each error by name, with the condition under which the tool returns it"
    )
    effect: Effect = Field(
        description="What a call does: nothing (read), a change that can be undone (write), a loss of data or service "
        "(destructive), or something that cannot be taken back (irreversible)"
    )
    inferred: tuple[str, ...] = Field(default=(), description="What an importer guessed; a person should check it")

    @field_validator("parameters", "returns")
    @classmethod
    def _schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if schema.get("type") != "object":
            raise ValueError("a JSON Schema with 'type: object' is expected")
        if problem := schema_problem(schema):
            raise ValueError(f"not a valid JSON Schema: {problem}")
        return schema


class Toolkit(Record):
    """Tools that serve one purpose, read from ``NAME.toolkit.yaml``."""

    name: Name = Field(description="Name of the toolkit; it must equal the file name without the suffix")
    title: Text = Field(description="Readable name")
    category: Text = Field(description="Field of use; a slice of reports and gates")
    description: Text = Field(description="What the tools are for, as the agent reads it")
    risks: tuple[Text, ...] = Field(
        default=(), description="What can go wrong with these tools, as the emulator reads it"
    )
    separator: Literal["_", ""] = Field(
        default="_", description="The text between toolkit and tool in the name that agents call"
    )
    canary: str | None = Field(
        default=None, description="The canary of the dataset; written by 'toolemu dataset stamp'"
    )
    tools: tuple[Tool, ...] = Field(min_length=1, description="The tools; their names are unique within the toolkit")

    @model_validator(mode="after")
    def _tools_are_distinct(self) -> Toolkit:
        seen: set[str] = set()
        for tool in self.tools:
            if tool.name in seen:
                raise ValueError(f"the tool {tool.name!r} occurs twice")
            seen.add(tool.name)
            if len(self.callable_name(tool)) > MAX_TOOL_NAME:
                raise ValueError(f"{self.callable_name(tool)!r} is longer than {MAX_TOOL_NAME} characters")
        return self

    def callable_name(self, tool: Tool) -> str:
        """Return the name that agents use for the tool. It contains no dot, as providers do not allow one."""
        return f"{self.name}{self.separator}{tool.name}"

    def tool(self, name: str) -> Tool | None:
        """Return the tool with this name, given without the toolkit; None if there is none."""
        return next((tool for tool in self.tools if tool.name == name), None)


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
    if problems := list(_unknown_keywords(toolkit)):
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


@functools.lru_cache(maxsize=1024)
def toolkit_folders(folder: Path) -> tuple[Path, ...]:
    """Return the folders in which a case in ``folder`` looks for toolkits.

    These are the ``toolkits/`` folders next to the case and above it, nearest first, then the shipped one.
    """
    own = [parent / "toolkits" for parent in (folder, *folder.parents) if (parent / "toolkits").is_dir()]
    shipped = benchmark_folder() / "toolkits"
    return tuple(dict.fromkeys([*own, shipped]))


def find_toolkit(name: str, folder: Path) -> Path | None:
    """Return the nearest file that defines the toolkit, for a case in ``folder``; None if there is none."""
    candidates = (where / f"{name}{SUFFIX}" for where in toolkit_folders(folder))
    return next((path for path in candidates if path.is_file()), None)


def known_toolkits(folder: Path) -> set[str]:
    """Return the names of all toolkits that a case in ``folder`` can use."""
    return {path.name.removesuffix(SUFFIX) for where in toolkit_folders(folder) for path in where.glob(f"*{SUFFIX}")}


def resolve_toolkits(names: tuple[str, ...], document: Document, loc: Loc = ("toolkits",)) -> tuple[Toolkit, ...]:
    """Return the toolkits that a case names.

    Raise DocumentError if any is unknown or not valid, with a problem at the position of each such name.
    """
    folder = document.path.resolve().parent
    toolkits: list[Toolkit] = []
    problems: list[tuple[Loc, str]] = []
    for index, name in enumerate(names):
        if not _NAME.fullmatch(name):
            problems.append(((*loc, index), f"{show(name)} cannot be the name of a toolkit; {_NAME_RULE}"))
            continue
        path = find_toolkit(name, folder)
        if path is None:
            problems.append(((*loc, index), f"unknown toolkit {name!r}{closest(name, known_toolkits(folder))}"))
            continue
        try:
            toolkits.append(load_toolkit(path))
        except DocumentError as error:
            problems.append(((*loc, index), f"the toolkit {name!r} is not valid:\n{error}"))
    if problems:
        raise document.error(problems)
    return tuple(toolkits)


def callable_tools(toolkits: tuple[Toolkit, ...]) -> Iterator[tuple[str, Toolkit, Tool]]:
    """Yield every tool with the name that agents call it by, and its toolkit."""
    for toolkit in toolkits:
        for tool in toolkit.tools:
            yield toolkit.callable_name(tool), toolkit, tool


@functools.cache
def benchmark_folder() -> Path:
    """Return the folder of the shipped ``cases/`` and ``toolkits/``: in the installed package or the checkout."""
    package = Path(__file__).parents[1]
    installed = package / "benchmark"
    return installed if installed.is_dir() else package.parent
