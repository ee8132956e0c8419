"""Makes a toolkit of published tools. What the source does not say is guessed, and listed in ``inferred``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from pytest_toolemu.authoring.importers.notes import Notes, add_note
from pytest_toolemu.authoring.importers.tool_sources.published_tools import PublishedTool, PublishedToolkit
from pytest_toolemu.authoring.importers.tool_sources.schema_converter import SchemaConverter
from pytest_toolemu.authoring.importers.tool_sources.tool_effects import guessed_effect, tool_names
from pytest_toolemu.core.toolkit import CALLABLE_NAME, MAX_TOOL_NAME, provider_name
from pytest_toolemu.emulators.schema_values import SchemaGenerator, UnsatisfiableSchemaError
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.regular_expressions import is_expression, occurs
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.formats.yaml_document import closest, show

Json = dict[str, Any]

MAX_TOOLS: Final = 40
"""The number of tools that are imported without a selection."""

_MAX_DESCRIPTION: Final = 20_000
_MAX_ERROR: Final = 500
_MAX_ERRORS: Final = 20
_IDENTIFIERS: Final = re.compile(
    r"(?i)(^|_)(id|key|name|number|owner|path|ref|repo|sha|slug|uri|url|uuid)s?$|[a-z](Id|Key|Name|Path)s?$"
)
_NOT_FOUND: Final = "The object named by the arguments does not exist."
_FAILED: Final = "The call failed; the message says why."


def selected(tools: tuple[PublishedTool, ...], only: str) -> tuple[PublishedTool, ...]:
    """Return the tools whose names contain a match of the expression ``only``; all of them if it is empty.

    Raise UsageError if there is none, if the expression is not valid, or if it is empty and there are too many tools.
    """
    if not only:
        if len(tools) > MAX_TOOLS:
            raise UsageError(
                f"the source has {len(tools):,} tools; select the tools that the agent has with --only, such as "
                f"--only '^({re.escape(tools[0].name)}|{re.escape(tools[1].name)})$', or select all with --only ."
            )
        return tools
    if not is_expression(only):
        raise UsageError(f"--only {show(only)}: is not a regular expression; correct it")
    chosen = tuple(tool for tool in tools if occurs(only, tool.name))
    if not chosen:
        raise UsageError(
            f"--only {show(only)}: matches none of {len(tools):,} tools{closest(only, [tool.name for tool in tools])}"
        )
    return chosen


def distinct_tools(tools: Iterable[PublishedTool], notes: Notes) -> dict[str, PublishedTool]:
    """Return the tools by the names that agents call them by, which providers accept and can tell apart."""
    distinct: dict[str, PublishedTool] = {}
    used: set[str] = set()
    for tool in tools:
        name = tool.name
        if not CALLABLE_NAME.fullmatch(name):
            name = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:MAX_TOOL_NAME].strip("_") or "tool"
        if provider_name(name) in used:
            add_note(notes, "a tool is left out, because agents cannot tell its name from an earlier one", name)
            continue
        used.add(provider_name(name))
        distinct[name] = tool
    return distinct


def toolkit_of(published: PublishedToolkit, tools: Iterable[PublishedTool], name: str) -> Json:
    """Return the toolkit, as in a file, without secrets. ``published.notes`` receives what was changed or left out."""
    distinct = distinct_tools(tools, published.notes)
    names = tool_names(distinct)
    return {
        "name": name,
        "title": visible(truncated(" ".join(published.name.split()) or name, 80)),
        "category": "imported",
        "description": truncated(published.description.strip(), _MAX_DESCRIPTION)
        or f"Tools of {visible(truncated(published.origin, 200))}.",
        "tools": [_tool(published, tool, names[key], key) for key, tool in distinct.items()],
    }


def _tool(published: PublishedToolkit, tool: PublishedTool, name: str, call_as: str) -> Json:
    """Return one tool. ``inferred`` names its parts that were guessed, or cut."""
    inferred = ["call_as"] if call_as != tool.name else []
    description = truncated(tool.description.strip(), _MAX_DESCRIPTION)
    if description != tool.description.strip() or not description:
        inferred.append("description")
    parameters, parameters_are_known = _parameters(published, tool)
    returns, returns_are_known = _returns(published, tool, name)
    errors = _declared_errors(tool) or _likely_errors(parameters)
    effect = tool.effect or guessed_effect(tool.name)
    is_known = {
        "parameters": parameters_are_known,
        "returns": returns_are_known,
        "errors": bool(tool.errors),
        "effect": tool.effect is not None and tool.effect_is_stated,
    }
    inferred += [part for part, known in is_known.items() if not known]
    return {
        "name": name,
        "call_as": call_as,
        "description": description or "Imported without a description.",
        "parameters": parameters,
        "returns": returns,
        "errors": errors,
        "effect": effect,
        **({"inferred": inferred} if inferred else {}),
    }


def _parameters(published: PublishedToolkit, tool: PublishedTool) -> tuple[Json, bool]:
    """Return the schema of the arguments, and whether the source states all of it."""
    if tool.parameters is None:
        return {"type": "object", "properties": {}}, False
    schema, is_cut = _converted(published, tool.parameters, "readOnly")
    if schema.get("description") == tool.description:  # of frameworks that derive both from one docstring
        del schema["description"]
    is_object = schema.get("type", "object") == "object"
    schema = {**schema, "type": "object"} if is_object else {}
    is_stated = tool.parameters_are_stated and is_object and not is_cut
    return {"type": "object", "properties": schema.pop("properties", {}), **schema}, is_stated


def _returns(published: PublishedToolkit, tool: PublishedTool, name: str) -> tuple[Json, bool]:
    """Return the schema of the result, of which the offline emulator can generate a value, and whether it is stated."""
    guess = _object({"text": {"type": "string", "description": "What the tool replies."}})
    if tool.returns is None:
        return guess, False
    schema, is_cut = _converted(published, tool.returns, "writeOnly")
    schema.pop("default", None)
    is_object = schema.get("type") == "object" or ("type" not in schema and "properties" in schema)
    result = {**schema, "type": "object"} if is_object and "anyOf" not in schema else _object({"result": schema})
    if _can_be_generated(result, name):
        return result, tool.returns_are_stated and is_object and not is_cut
    flat = {key: _without_parts(part) for key, part in result.get("properties", {}).items()}
    result = {"type": "object", "properties": flat, "required": result.get("required", [])}
    return (result if flat and _can_be_generated(result, name) else guess), False


def _converted(published: PublishedToolkit, schema: Any, omitted: str) -> tuple[Json, bool]:
    root = schema if published.definitions is None else published.definitions
    converter = SchemaConverter(root, published.bounds, omitted if published.marks_directions else None)
    return converter.convert(schema), converter.is_cut


def _can_be_generated(schema: Json, name: str) -> bool:
    for seed in ("0", "1", "2"):
        generator = SchemaGenerator(seed, "en_US", datetime(2026, 1, 2, tzinfo=UTC), {})
        try:
            if not violations(schema, generator.value(schema, (name,))):
                return True
        except (UnsatisfiableSchemaError, ArithmeticError, RecursionError):
            continue
    return False


def _without_parts(schema: Any) -> Json:
    kept = ("type", "description") if isinstance(schema, dict) else ()
    return {key: schema[key] for key in kept if key in schema}


def _object(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _declared_errors(tool: PublishedTool) -> dict[str, str]:
    """Return the errors that the source states, with valid names."""
    errors = list((tool.errors or {}).items())[:_MAX_ERRORS]
    names = tool_names(name for name, _ in errors)
    return {names[name]: truncated(" ".join(text.split()), _MAX_ERROR) or _FAILED for name, text in errors}


def _likely_errors(parameters: Json) -> dict[str, str]:
    """Return errors for a tool of which none are known: without any, the emulator could never let a call fail."""
    names_something = any(_IDENTIFIERS.search(name) for name in parameters.get("required", ()))
    return {**({"NotFound": _NOT_FOUND} if names_something else {}), "Failed": _FAILED}
