"""The tools of a case as Python functions, for frameworks that read names, docstrings, and signatures."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Annotated, Any

from pydantic import WithJsonSchema

from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.formats.json_schema import conforms, inlined, members_text, type_text


@dataclass(frozen=True)
class Parameter:
    """A parameter of a tool, and the name of the Python parameter that stands for it."""

    name: str
    python_name: str
    schema: Any
    required: bool

    @property
    def annotation(self) -> Any:
        """A type from which pydantic, and so most frameworks, generates exactly the schema of the toolkit."""
        return Annotated[Any, WithJsonSchema(self.schema if isinstance(self.schema, dict) else {})]

    def is_omitted(self, value: Any) -> bool:
        """Return whether a value means that the argument is absent.

        Frameworks send the default, None, for every optional parameter that the model left out.
        """
        return value is None and not self.required and not conforms({"allOf": [self.schema]}, None)


def describe(tool: Tool) -> str:
    """Return what an agent reads about a tool: its purpose and its result. Errors are not announced."""
    if tool.list_member is None:
        return f"{tool.description}\nReturns {members_text(tool.returns, explain='open')}"
    return f"{tool.description}\nReturns {type_text(tool.returns['properties'][tool.list_member], 'open')}"


def make_function(function: Callable[..., Any], name: str, tool: Tool) -> Callable[..., Any]:
    """Give a function of a mapping of arguments the name, docstring, and signature of a tool.

    ``function`` stays ``async`` if it is. The result takes keyword arguments, whose annotations carry the JSON Schemas
    of the tool's parameters. A parameter whose name is no Python name, such as ``from``, gets a similar one.
    """
    parameters = {parameter.python_name: parameter for parameter in _parameters(tool)}

    def sent(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {
            parameters[key].name if key in parameters else key: value
            for key, value in arguments.items()
            if key not in parameters or not parameters[key].is_omitted(value)
        }

    tool_function: Any
    if inspect.iscoroutinefunction(function):

        async def call_async(**arguments: Any) -> Any:
            return await function(sent(arguments))

        tool_function = call_async
    else:

        def call(**arguments: Any) -> Any:
            return function(sent(arguments))

        tool_function = call
    tool_function.__name__ = tool_function.__qualname__ = name
    tool_function.__doc__ = describe(tool)
    tool_function.__annotations__ = {key: each.annotation for key, each in parameters.items()} | {
        "return": list[Any] if tool.list_member else dict[str, Any]
    }
    tool_function.__signature__ = inspect.Signature(
        [
            inspect.Parameter(
                key,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=each.annotation,
                default=inspect.Parameter.empty if each.required else None,
            )
            for key, each in sorted(parameters.items(), key=lambda item: not item[1].required)
        ],
        return_annotation=tool_function.__annotations__["return"],
    )
    return tool_function  # type: ignore[no-any-return]


def _parameters(tool: Tool) -> list[Parameter]:
    schema = inlined(tool.parameters)
    properties: dict[str, Any] = schema.get("properties", {})
    required = set(schema.get("required", ()))
    parameters: list[Parameter] = []
    used = {key for key in properties if _is_name(key)}
    for key, part in properties.items():
        name = key
        if not _is_name(key):
            name = re.sub(r"\W", "_", key).strip("_")
            name = name if name.isidentifier() else f"value_{name}".rstrip("_")
            while name in used or iskeyword(name):
                name += "_"
            used.add(name)
        parameters.append(Parameter(key, name, part, key in required))
    return parameters


def _is_name(key: str) -> bool:
    # Pydantic, with which frameworks read signatures, takes a leading underscore for a private attribute.
    return key.isidentifier() and not iskeyword(key) and not key.startswith("_")
