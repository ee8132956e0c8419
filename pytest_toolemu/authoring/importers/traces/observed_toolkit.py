"""Makes tools of a toolkit from those in a conversation.

What the trace does not say is inferred, and listed in ``inferred``.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from pytest_toolemu.authoring.importers.notes import Notes, add_note
from pytest_toolemu.authoring.importers.tool_sources.published_tools import DETAILED
from pytest_toolemu.authoring.importers.tool_sources.schema_converter import SchemaConverter
from pytest_toolemu.authoring.importers.tool_sources.tool_effects import guessed_effect, tool_names
from pytest_toolemu.authoring.importers.traces.conversation import Json, ObservedCall, ObservedTool
from pytest_toolemu.core.toolkit import CALLABLE_NAME, MAX_TOOL_NAME
from pytest_toolemu.formats.json_schema import conforms, schema_problem
from pytest_toolemu.formats.json_schema_keywords import unknown_keywords
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.yaml_document import Loc

# The error of a tool whose observed results include an error.
_FAILED: Final = "Failed"
_ERROR_LENGTH: Final = 500


def tools_of(tools: list[ObservedTool], calls: list[ObservedCall], notes: Notes) -> dict[str, Json]:
    """Return the offered tools, and those that were called without a definition, by their names in the trace."""
    offered = {tool.name: tool for tool in tools}
    for call in calls:
        if call.name not in offered:
            offered[call.name] = ObservedTool(call.name)
            add_note(notes, "a tool that was called but not defined is inferred from its calls", call.name)
    names = tool_names(offered)
    return {
        key: _tool(names[key], tool, [call for call in calls if call.name == key], notes)
        for key, tool in offered.items()
    }


def result_of(call: ObservedCall) -> Json:
    """Return the observed result as an object, as the results of tools are."""
    if isinstance(call.result, dict) and set(call.result) != {"error"}:
        return call.result
    kind = "items" if isinstance(call.result, list) else "text" if isinstance(call.result, str) else "value"
    return {kind: call.result}


def error_of(call: ObservedCall) -> str | None:
    """Return the observed error as ``Name: message``; None if the call succeeded."""
    is_error_object = isinstance(call.result, dict) and set(call.result) == {"error"}
    if not call.is_error and not is_error_object:
        return None
    message = call.result["error"] if is_error_object else call.result
    if call.has_named_error:
        return str(message)
    return f"{_FAILED}: {truncated(' '.join(str(message).split()) or 'no message', _ERROR_LENGTH)}"


def _tool(name: str, tool: ObservedTool, calls: list[ObservedCall], notes: Notes) -> Json:
    if tool.definition is not None:
        return {**tool.definition, "name": name, "call_as": tool.name}
    inferred = ["returns", "errors", "effect"]
    if tool.parameters is None:
        inferred.insert(0, "parameters")
    parameters = _parameters(tool, calls, notes)
    results = [result_of(call) for call in calls if call.has_result and error_of(call) is None]
    errors = {_FAILED: "The call failed, as in the trace."} if any(error_of(call) for call in calls) else {}
    if not (is_callable := bool(CALLABLE_NAME.fullmatch(tool.name))):
        add_note(
            notes, f"a name that is not {CALLABLE_NAME.pattern} cannot be kept for agents", tool.name[:MAX_TOOL_NAME]
        )
    return {
        "name": name,
        **({"call_as": tool.name} if is_callable else {}),
        "description": tool.description.strip() or "Imported without a description.",
        "parameters": parameters,
        "returns": observed_schema(results) if results else _object({"text": {"type": "string"}}, ["text"]),
        **({"errors": errors} if errors else {}),
        "effect": guessed_effect(name),
        "inferred": inferred,
    }


def _parameters(tool: ObservedTool, calls: list[ObservedCall], notes: Notes) -> Json:
    """Return the schema of the arguments: the trace's, if it can be used, or else that of the observed arguments."""
    if tool.parameters is not None:
        schema = {"type": "object", "properties": {}, **copy.deepcopy(tool.parameters)}
        is_dialect = False
        for loc, _ in sorted(unknown_keywords(schema), key=lambda problem: -len(problem[0])):
            if loc[-2] == "nullable":
                is_dialect = True
                continue
            _remove(schema, loc[:-1])
            add_note(notes, "an unknown keyword of a JSON Schema is left out", tool.name)
        if is_dialect or schema_problem(schema):
            schema = _converted(schema, tool.name, notes)
        if schema.get("type") == "object" and not schema_problem(schema):
            return schema
        add_note(notes, "parameters without a usable JSON Schema accept everything", tool.name)
        return {"type": "object", "properties": {}}
    schema = observed_schema([call.arguments for call in calls])
    return {**schema, "required": []}


def _converted(schema: Json, tool: str, notes: Notes) -> Json:
    """Return a schema of another dialect, such as OpenAPI 3.0, in JSON Schema; an empty one if that is not possible."""
    converter = SchemaConverter(schema, DETAILED)
    converted = converter.convert(schema)
    if schema["properties"] and not converted.get("properties"):
        return {}
    if converter.is_cut:
        add_note(notes, "parts of parameters without a usable JSON Schema accept everything", tool)
    return {"type": "object", "properties": {}, **converted}


def observed_schema(values: list[Json]) -> Json:
    """Return a JSON Schema of the members that all or some of the values have. Nested values stay open."""
    types: dict[str, set[str]] = {}
    for value in values:
        for key, member in value.items():
            types.setdefault(key, set()).add(_type(member))
    properties = {
        key: {"type": next(iter(kinds)) if len(kinds) == 1 else sorted(kinds)} for key, kinds in types.items()
    }
    return _object(properties, [key for key in types if all(key in value for value in values)])


def _object(properties: Json, required: list[str]) -> Json:
    return {"type": "object", "properties": properties, "required": required}


def _type(value: Any) -> str:
    kinds = (("boolean", bool), ("integer", int), ("number", float), ("string", str), ("array", list), ("object", dict))
    return next((name for name, kind in kinds if isinstance(value, kind)), "null")


def _remove(schema: Any, loc: Loc) -> None:
    """Remove the member at a location, of which the last part is a keyword."""
    for part in loc[:-1]:
        schema = schema[part]
    if isinstance(schema, dict):
        schema.pop(loc[-1], None)


def accepts(tool: Json, arguments: Json) -> bool:
    """Return whether a tool takes the arguments."""
    return conforms(tool["parameters"], arguments)
