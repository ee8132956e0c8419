"""Tools in the formats of model providers: OpenAI (both interfaces), Anthropic, Gemini, and plain lists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.importers.notes import Notes, add_note
from pytest_toolemu.authoring.importers.tool_sources.mcp_tools import published_tool
from pytest_toolemu.authoring.importers.tool_sources.published_tools import PublishedTool, PublishedToolkit
from pytest_toolemu.authoring.importers.traces.json_values import load_json, objects
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.formats.yaml_document import show

Json = dict[str, Any]

MAX_BYTES: Final = 50_000_000
"""The largest file that is read, in bytes."""

_LISTS: Final = ("tools", "functions", "functionDeclarations", "function_declarations", "result", "request", "body")
_PARAMETERS: Final = (
    "parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema", "args_schema",
    "params_json_schema",
)  # fmt: skip
_RETURNS: Final = (
    "outputSchema", "output_schema", "response", "responseJsonSchema", "response_json_schema", "returns",
)  # fmt: skip
_READS: Final = (
    "a JSON list of functions in the format of OpenAI, Anthropic, Gemini, or LangChain, a request with such a list, "
    "or the result of tools/list"
)
_MAX_NESTED: Final = 6


def read_functions(path: Path) -> PublishedToolkit:
    """Return the tools in a JSON file. Raise UsageError if it cannot be read or contains none."""
    notes: Notes = {}
    tools = tuple(functions_in(load_json_file(path, _READS), notes))
    if not tools:
        raise UsageError(f"{path}: contains no tools; this command reads {_READS}")
    return PublishedToolkit(path.name.partition(".")[0], f"the file {path.name}", tools, notes=notes)


def load_json_file(path: Path, expected: str) -> Any:
    """Return the value in a JSON file. Raise UsageError if it is missing, too large, or not valid."""
    text = read_file(path, expected)
    try:
        return load_json(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: is not JSON: {error.msg}; this command reads {expected}") from None
    except RecursionError:
        raise UsageError(f"{path}: is nested too deeply; this command reads {expected}") from None


def read_file(path: Path, expected: str) -> str:
    """Return the text of a file. Raise UsageError if it is missing, too large, or not UTF-8."""
    try:
        return read_regular(path, MAX_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; this command reads {expected}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8 text; this command reads {expected}") from None


def functions_in(value: Any, notes: Notes, depth: int = 0) -> Iterator[PublishedTool]:
    """Yield the tools in a list, or in an object that contains one. Tools without a name are noted."""
    if isinstance(value, dict):
        inner = next((value[key] for key in _LISTS if isinstance(value.get(key), list | dict)), None)
        if inner is not None and depth < _MAX_NESTED:
            yield from functions_in(inner, notes, depth + 1)
        elif depth == 0:
            yield from _tool(value, notes)
        return
    for each in objects(value):
        if any(isinstance(each.get(key), list) for key in _LISTS) and depth < _MAX_NESTED:
            yield from functions_in(each, notes, depth + 1)
        else:
            yield from _tool(each, notes)


def _tool(definition: Json, notes: Notes) -> Iterator[PublishedTool]:
    inner = definition.get("function")
    function: Json = inner if isinstance(inner, dict) else definition
    name = function.get("name") or function.get("title")
    if not isinstance(name, str) or not name:
        add_note(notes, "an entry without a name is left out", show(definition, 60))
        return
    parameters = _first(function, _PARAMETERS)
    if parameters is None and isinstance(function.get("args"), dict):  # of LangChain: schemas by argument
        parameters = {"type": "object", "properties": function["args"]}
    if parameters is None and "properties" in function:  # the schema of LangChain's arguments, with the tool's name
        parameters = {key: part for key, part in function.items() if key not in ("title", "description")}
    if parameters is None and function.get("type") not in (None, "function", "custom"):
        add_note(notes, "a tool that the provider executes itself is left out", name)
        return
    entry = {
        "name": name,
        "description": function.get("description"),
        "inputSchema": parameters,
        "outputSchema": _first(function, _RETURNS),
        "annotations": function.get("annotations"),
    }
    if (tool := published_tool(entry, notes)) is not None:
        yield tool


def _first(function: Json, keys: tuple[str, ...]) -> Any:
    return next((function[key] for key in keys if isinstance(function.get(key), dict)), None)
