"""Tools that are Python objects: functions, tools of frameworks, agents that have some, and lists of all these.

Frameworks are recognized by the attributes of their objects, so that none is imported here.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from pytest_toolemu.agents.custom import load_object
from pytest_toolemu.authoring.importers.notes import Notes, add_note
from pytest_toolemu.authoring.importers.tool_sources.function_lists import functions_in
from pytest_toolemu.authoring.importers.tool_sources.published_tools import PublishedTool, PublishedToolkit
from pytest_toolemu.authoring.importers.traces.json_values import load_json
from pytest_toolemu.errors import UsageError

Json = dict[str, Any]

_MAX_NESTED: Final = 6
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
    value = load_object(target, "tools")
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
    return PublishedToolkit(target.rpartition(":")[2], f"the Python object {target}", tools, notes=notes)


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
    return PublishedTool(
        name=function.__name__,
        description=inspect.getdoc(function) or "",
        parameters=_argument_schema(function),
        returns=_result_schema(function),
    )


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function, eval_str=True)
    except Exception:  # annotations are expressions of the user
        return None


def _argument_schema(function: Callable[..., Any]) -> Any:
    """Return the schema of a function's arguments; None if its annotations have none."""
    signature = _signature(function)
    if signature is None:
        return None
    members: Json = {}
    for name, parameter in signature.parameters.items():
        annotation = Any if parameter.annotation is inspect.Parameter.empty else parameter.annotation
        if name not in ("self", "cls") and parameter.kind not in _VARIABLE and not _is_context(annotation):
            members[name] = annotation if parameter.default is inspect.Parameter.empty else NotRequired[annotation]
    return _json_schema(TypedDict("Arguments", members))  # type: ignore[operator]


def _is_context(annotation: Any) -> bool:
    kind = getattr(annotation, "__origin__", annotation)
    return getattr(kind, "__name__", "") in _CONTEXTS


def _result_schema(function: Callable[..., Any]) -> Any:
    signature = _signature(function)
    annotation = None if signature is None else signature.return_annotation
    return None if annotation in (None, Any, inspect.Signature.empty) else _json_schema(annotation)


def _json_schema(kind: Any) -> Any:
    try:
        return _as_json(TypeAdapter(kind).json_schema())
    except Exception:  # types of the user may have any error, or no schema
        return None
