"""Tools in the formats of model providers: OpenAI (both interfaces), Anthropic, Gemini, and plain lists."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import GenericAlias, UnionType
from typing import Any, Final, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from typing_extensions import TypedDict, is_typeddict

from pytest_toolemu.agents.custom import load_object
from pytest_toolemu.authoring.importers.mcp_tools import published_tool
from pytest_toolemu.authoring.importers.published_tools import PublishedTool, PublishedToolkit
from pytest_toolemu.authoring.importers.sources import Notes, add_note, load_json, objects, read_values
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.json_schema import conforms
from pytest_toolemu.formats.yaml_document import show

Json = dict[str, Any]

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
    values = read_values(path, _READS)
    tools = tuple(functions_in(values[0] if len(values) == 1 else values, notes))
    if not tools:
        raise UsageError(f"{path}: contains no tools; this command reads {_READS}")
    return PublishedToolkit(path.name.partition(".")[0], f"the file {path.name}", tools, notes=notes)


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


_KINDS: Final = (
    "functions, definitions of functions, tools of LangChain, the OpenAI Agents SDK, or Pydantic AI, agents with such "
    "tools, or a list of these"
)

# Of parameters that a framework fills in, and the model never sees.
_CONTEXTS: Final = ("RunContext", "RunContextWrapper", "ToolContext", "ToolRuntime", "Context", "RunnableConfig")
# Attributes with the schema of the arguments: of the OpenAI Agents SDK, Pydantic AI, and LangChain.
_SCHEMAS: Final = ("params_json_schema", "parameters_json_schema", "tool_call_schema")
# Attributes of agents of the OpenAI Agents SDK, whose tools are not their own.
_ELSEWHERE: Final = ("handoffs", "mcp_servers")
_VARIABLE: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def read_python_tools(target: str) -> PublishedToolkit:
    """Import ``module:object`` and return its tools. Raise UsageError if there are none."""
    if not all(target.rpartition(":")[::2]):
        raise UsageError(f"{target!r} does not name tools; write package.module:object or path.py:object")
    _, value = load_object(target, "tools")
    notes: Notes = {}
    try:
        tools = tuple(published_tools_of(value, notes))
    except UsageError:
        raise
    except Exception as error:  # attributes, definitions, and schemas are code of the user or of a framework
        raise UsageError(
            f"{target}: reading its tools failed: {type(error).__name__}: {error}; correct the object, or name one tool"
        ) from error
    if not tools:
        raise UsageError(f"{target}: an object of type {type(value).__name__} that contains no tools; name {_KINDS}")
    module = target.rpartition(":")[0]
    name = Path(module).stem if module.endswith(".py") else module
    return PublishedToolkit(name, f"the Python object {target}", tools, notes=notes)


def published_tools_of(value: Any, notes: Notes, depth: int = 0) -> Iterator[PublishedTool]:
    """Yield the tools in an object. ``notes`` receives unknown kinds of tools."""
    for name in _ELSEWHERE:
        if isinstance(part := getattr(value, name, None), list) and part:
            add_note(notes, "tools that an agent has only through other agents are left out; import them, too", name)
    inner = _inner(value)
    definition = _definition(value)
    if definition is not None:
        yield from functions_in([_as_json(definition)], notes)
    elif inner is not None and depth < _MAX_NESTED:
        for each in inner:
            yield from published_tools_of(each, notes, depth + 1)
    elif callable(value) and hasattr(value, "__name__") and not isinstance(value, type):
        yield _function(value)
    elif depth:
        add_note(notes, "an object that is not a known kind of tool is left out", type(value).__name__)


def _inner(value: Any) -> list[Any] | None:
    """Return the parts of a list, or of an object that has tools; None for another object."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, type):
        return None
    if callable(getattr(value, "get_tools", None)) and not hasattr(value, "toolsets"):
        try:
            return list(value.get_tools())
        except TypeError:  # it needs a context, or is asynchronous
            pass
    for name in ("toolsets", "tools", "wrapped"):
        part = getattr(value, name, None)
        if part is not None and not callable(part):
            return _inner(part) if isinstance(part, Mapping | list | tuple) else [part]
    return None


def _definition(value: Any) -> Json | None:
    """Return the definition of a framework's tool, or of one in a provider's format; None for another object."""
    if isinstance(value, Mapping):
        return dict(value) if {"name", "function", "functionDeclarations", "title"} & value.keys() else None
    if isinstance(value, type):
        return None
    if hasattr(value, "inputSchema") and hasattr(value, "model_dump"):  # Model Context Protocol
        return dict(value.model_dump(mode="json"))
    tool: Any = getattr(value, "tool_def", value)  # Pydantic AI keeps the definition beside the function
    schema = next((getattr(tool, name) for name in _SCHEMAS if hasattr(tool, name)), None)
    if schema is None:
        return None
    schema = schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema
    return {"name": tool.name, "description": str(tool.description or ""), "parameters": schema}


def _as_json(definition: Json) -> Any:
    return load_json(json.dumps(definition, default=str))


def _function(function: Callable[..., Any]) -> PublishedTool:
    """Return a function's tool; its schemas are None if its annotations have none."""
    parameters = returns = None
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:  # annotations are expressions of the user
        signature = None
    if signature is not None:
        parameters = _argument_schema(signature)
        annotation = signature.return_annotation
        returns = None if annotation in (None, Any, inspect.Signature.empty) else _json_schema(annotation)
    return PublishedTool(function.__name__, inspect.getdoc(function) or "", parameters, returns=returns)


def _argument_schema(signature: inspect.Signature) -> Any:
    members: Json = {}
    for name, parameter in signature.parameters.items():
        annotation = Any if parameter.annotation is inspect.Parameter.empty else parameter.annotation
        is_context = getattr(getattr(annotation, "__origin__", annotation), "__name__", "") in _CONTEXTS
        if name not in ("self", "cls") and parameter.kind not in _VARIABLE and not is_context:
            members[name] = annotation if parameter.default is inspect.Parameter.empty else NotRequired[annotation]
    schema = _json_schema(TypedDict("Arguments", members))  # type: ignore[operator]
    for name, member in (schema or {}).get("properties", {}).items():
        default = signature.parameters[name].default
        if isinstance(default, _PLAIN) and conforms({"$defs": schema.get("$defs", {}), "allOf": [member]}, default):
            member["default"] = default
    return schema


# Types of defaults that a schema can state; None stands for an absent argument.
_PLAIN: Final = (str, bool, int, float)


def _readable(kind: Any) -> Any:
    """Return the type with the TypedDicts that Pydantic reads: before Python 3.12, it refuses those of ``typing``."""
    arguments = get_args(kind)
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        members: Json = {}
        for name, hint in hints.items():
            qualifier = get_origin(hint) if get_origin(hint) in (Required, NotRequired) else None
            bare = _readable(get_args(hint)[0] if qualifier else hint)
            is_required = qualifier is Required or (qualifier is None and name in kind.__required_keys__)
            members[name] = bare if is_required else NotRequired[bare]
        return TypedDict(kind.__name__, members)  # type: ignore[operator]
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return Union[tuple(map(_readable, arguments))]  # noqa: UP007 - the members are known only now
    if isinstance(kind, GenericAlias):
        return kind.__origin__[tuple(map(_readable, arguments))]  # type: ignore[index]
    return kind


def _json_schema(kind: Any) -> Any:
    try:
        return _as_json(TypeAdapter(_readable(kind)).json_schema())
    except Exception:  # types of the user may have any error, or no schema
        return None
