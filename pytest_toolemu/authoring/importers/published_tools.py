"""Tools as their source publishes them, before they become tools of a toolkit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.authoring.importers.schema_converter import SchemaBounds, SchemaConverter
from pytest_toolemu.authoring.importers.sources import VOCABULARY, Notes, add_note
from pytest_toolemu.authoring.starter import create_text, schema_reference
from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.toolkit import (
    CALLABLE_NAME,
    MAX_TOOL_NAME,
    NAME,
    SUFFIX,
    Effect,
    Toolkit,
    callable_tools,
    provider_name,
)
from pytest_toolemu.emulators.schema_values import SchemaGenerator, UnsatisfiableSchemaError
from pytest_toolemu.errors import DocumentError, UsageError
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.formats.regular_expressions import is_expression, occurs
from pytest_toolemu.formats.text import counted, truncated, visible
from pytest_toolemu.formats.yaml_document import MAX_BYTES, Document, closest, dump, show

DETAILED = SchemaBounds(depth=8, members=100)
"""For sources that describe single tools, which models read as they are."""


@dataclass(frozen=True)
class PublishedTool:
    """One tool: what its source says about it. None stands for what the source does not say.

    ``name`` is the source's own. ``parameters`` and ``returns`` are JSON Schemas as they were published, of any form.
    A part is not ``stated`` if it is a guess, which only this source allows, or not all that the source says.
    """

    name: str
    description: str = ""
    parameters: Any = None
    parameters_are_stated: bool = True
    returns: Any = None
    returns_are_stated: bool = True
    errors: Mapping[str, str] | None = None
    effect: Effect | None = None
    effect_is_stated: bool = True


@dataclass(frozen=True)
class PublishedToolkit:
    """The tools of one source.

    ``name`` is how the source calls itself, ``origin`` describes it in a phrase, such as ``the MCP server files 1.2``.
    References in schemas lead into ``definitions``; None: into the schema itself. ``notes`` says what was left out.
    If it ``marks_directions``, members that are ``readOnly`` are no arguments, and ``writeOnly`` ones no results.
    """

    name: str
    origin: str
    tools: tuple[PublishedTool, ...]
    description: str = ""
    definitions: Any = None
    bounds: SchemaBounds = DETAILED
    marks_directions: bool = False
    notes: Notes = field(default_factory=dict)


_EFFECTS: Final[dict[str, Effect]] = {
    verb: effect for effect, verbs in reversed(VOCABULARY["verbs"].items()) for verb in verbs.split()
}
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def guessed_effect(name: str) -> Effect:
    """Return the effect that the first verb in a name suggests: ``destructive`` for ``issues_delete``.

    Of the 488 tools of the shipped toolkits, 85 % have the effect that their name suggests.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    effects = [_EFFECTS[word] for word in words if word in _EFFECTS]
    if words[:1] == ["create"]:
        return "irreversible" if "irreversible" in effects else "write"
    return effects[0] if effects else "write"


def annotated_effect(name: str, annotations: Mapping[str, Any]) -> tuple[Effect, bool]:
    """Return the effect by a tool's annotations of the Model Context Protocol, and whether they state it.

    An annotation that a server leaves out says nothing: the default of the specification, destructive, is not what
    authors of servers mean by their silence.
    """
    guess = guessed_effect(name)
    if annotations.get("readOnlyHint") is True:
        return "read", True
    if annotations.get("destructiveHint") is True:
        # No annotation distinguishes a loss from what cannot be taken back.
        return (guess, False) if guess == "irreversible" else ("destructive", True)
    contradicted = {"read": "readOnlyHint", "destructive": "destructiveHint"}.get(guess, "")
    return ("write" if annotations.get(contradicted) is False else guess), False


def method_effect(method: str, name: str) -> tuple[Effect, bool]:
    """Return the effect of an HTTP method, and whether the method states it."""
    if method in ("get", "delete"):
        return ("read" if method == "get" else "destructive"), True
    guess = guessed_effect(name)
    return ("write" if guess == "read" else guess), False


_BOUNDARY: Final = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
_NAME_LENGTH: Final = 40


def tool_names(tools: Iterable[str]) -> dict[str, str]:
    """Return a distinct name for each tool, such as ``CreatePullRequest`` for ``create_pull_request``."""
    names: dict[str, str] = {}
    for tool in tools:
        name = "".join(word[:1].upper() + word[1:] for word in _BOUNDARY.split(tool) if word)
        name = (name if name[:1].isalpha() else f"Tool{name}")[:_NAME_LENGTH]
        base, number = name[: _NAME_LENGTH - 3], 2
        while name in names.values():
            name, number = f"{base}{number}", number + 1
        names[tool] = name
    return names


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
    wrapped = returns.get("properties", {}).get(_WRAPPED, {})
    is_wrapped_list = isinstance(tool.returns, dict) and tool.returns.get("type") == wrapped.get("type") == "array"
    declared = list((tool.errors or {}).items())[:_MAX_ERRORS]
    error_names = tool_names(error for error, _ in declared)
    errors = {error_names[error]: truncated(" ".join(text.split()), _MAX_ERROR) or _FAILED for error, text in declared}
    if not errors:  # without any, the emulator could never let a call fail
        names_something = any(_IDENTIFIERS.search(key) for key in parameters.get("required", ()))
        errors = {**({"NotFound": _NOT_FOUND} if names_something else {}), "Failed": _FAILED}
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
        **({"list_member": _WRAPPED} if is_wrapped_list else {}),
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


# The member of a result that is no object in the source.
_WRAPPED: Final = "result"


def _returns(published: PublishedToolkit, tool: PublishedTool, name: str) -> tuple[Json, bool]:
    """Return the schema of the result, of which the offline emulator can generate a value, and whether it is stated."""
    guess = _object({"text": {"type": "string", "description": "What the tool replies."}})
    if tool.returns is None:
        return guess, False
    schema, is_cut = _converted(published, tool.returns, "writeOnly")
    schema.pop("default", None)
    is_object = schema.get("type") == "object" or ("type" not in schema and "properties" in schema)
    result = {**schema, "type": "object"} if is_object and "anyOf" not in schema else _object({_WRAPPED: schema})
    if not _can_be_generated(result, name):
        return guess, False
    return result, tool.returns_are_stated and is_object and not is_cut


def _converted(published: PublishedToolkit, schema: Any, omitted: str) -> tuple[Json, bool]:
    root = schema if published.definitions is None else published.definitions
    converter = SchemaConverter(root, published.bounds, omitted if published.marks_directions else None)
    return converter.convert(schema), converter.is_cut


def _can_be_generated(schema: Json, name: str) -> bool:
    generator = SchemaGenerator("0", "en_US", datetime(2026, 1, 2, tzinfo=UTC), {})
    try:
        return not violations(schema, generator.value(schema, (name,)))
    except (UnsatisfiableSchemaError, ArithmeticError, RecursionError):
        return False


def _object(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def toolkit_name(path: Path) -> str:
    """Return the name of the toolkit in a file. Raise UsageError if the file's name cannot be that of a toolkit."""
    name = path.name.removesuffix(SUFFIX)
    if not path.name.endswith(SUFFIX) or not NAME.fullmatch(name):
        raise UsageError(
            f"--into {path}: the file's name must be NAME{SUFFIX}, where NAME has at most 40 letters and digits and "
            "begins with a letter; choose another name"
        )
    return name


def import_toolkit(published: PublishedToolkit, path: Path, only: str) -> list[Json]:
    """Write the selected tools as a toolkit, and return them.

    Raise UsageError if the file exists, would be too large or not valid, or cannot be written.
    """
    toolkit = toolkit_of(published, selected(published.tools, only), toolkit_name(path))
    text = _toolkit_text(path, toolkit, published.origin)
    if len(text.encode()) > MAX_BYTES:
        raise UsageError(f"{path}: would exceed the maximum of {MAX_BYTES:,} bytes; select fewer tools with --only")
    try:
        Document.parse(text, path).build(Toolkit)
        is_new = create_text(path, text, "choose another file with --into")
    except DocumentError as error:
        raise UsageError(f"the tools do not form a valid toolkit; exclude the named one with --only: {error}") from None
    if not is_new:
        raise UsageError(
            f"{path}: already exists and was not changed; compare it with --diff, delete it, or choose another file "
            "with --into"
        )
    return list(toolkit["tools"])


def _toolkit_text(path: Path, toolkit: Json, origin: str) -> str:
    """Return the content of the file, with comments."""
    head = {key: value for key, value in toolkit.items() if key != "tools"}
    source = redact(visible(" ".join(truncated(origin, 200).split())))
    lines = [
        f"# yaml-language-server: $schema={schema_reference(path, 'toolkit')}",
        f"# {counted(len(toolkit['tools']), 'tool')} of {source}.",
        "# Nothing is executed: the emulator answers calls. Agents call each tool by the name in `call_as`.",
        "# `inferred` lists the parts that are guesses. Check and correct them, and remove `inferred`; until then,",
        "# `toolemu lint` warns. The same import with --diff shows what has changed in the source.",
    ]
    return "\n".join([*lines, dump(head) + "tools:", *map(_tool_text, toolkit["tools"]), ""])


def _tool_text(tool: Json) -> str:
    inferred = tool.get("inferred", ())
    lines: list[str] = []
    for key, value in tool.items():
        lines += [f"# {VOCABULARY['comments'][key]}"] if key in inferred else []
        # `inferred` is on one line, which is easy to remove.
        text = f"inferred: [{', '.join(value)}]" if key == "inferred" else dump({key: value}).rstrip("\n")
        lines += text.split("\n")
    return "\n".join([f"  - {lines[0]}", *(f"    {line}" if line else "" for line in lines[1:])])


def default_path(published: PublishedToolkit) -> Path:
    """Return the file for a source's tools: ``toolkits/NAME.toolkit.yaml``, with the name of the source."""
    (name,) = tool_names([published.name]).values()
    return Path("toolkits", f"{name}{SUFFIX}")


def differences(published: PublishedToolkit, path: Path, only: str) -> list[str]:
    """Return one line for each difference between a file and its source; empty if there is none.

    Parts that the source does not state are not compared: a person has corrected them. Raise UsageError if the file
    does not exist.
    """
    name = toolkit_name(path)
    if not path.is_file():
        raise UsageError(f"{path}: does not exist; first write it without --diff, or name another file with --into")
    chosen = selected(published.tools, only)
    now = {tool["call_as"]: tool for tool in toolkit_of(published, chosen, name)["tools"]}
    # A selection is of names of the source, which can differ from those that agents call.
    others = distinct_tools(published.tools, {}).keys() - now.keys()
    kept = {
        called: tool
        for called, _, tool in callable_tools((load_toolkit(path),))
        if not only or called in now or (occurs(only, called) and called not in others)
    }
    lines = [f"+ {called}: only the source has it" for called in now if called not in kept]
    lines += [f"- {called}: only the file has it" for called in kept if called not in now]
    for called, source in distinct_tools(chosen, {}).items():
        if called in kept:
            stated = _stated(source, now[called])
            before = kept[called].model_dump(mode="json", include=set(stated))
            changes = (line for part in stated for line in _compared(before[part], stated[part], part))
            lines += [f"~ {called}: {line}" for line in changes]
    return lines


def _stated(source: PublishedTool, tool: Json) -> Json:
    """Return the parts of a tool that its source states, at least in part."""
    is_stated = {
        "description": source.description.strip(),
        "parameters": source.parameters is not None,
        "returns": source.returns is not None,
        "errors": source.errors,
        "effect": "effect" not in tool.get("inferred", ()),
    }
    return {part: tool[part] for part, stated in is_stated.items() if stated}


def _compared(before: Any, after: Any, place: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from _compared(before.get(key, _ABSENT), after.get(key, _ABSENT), f"{place}.{key}")
    elif before != after:
        old, new = ("nothing" if value is _ABSENT else show(value, 120) for value in (before, after))
        yield f"{place}: {old} became {new}"


_ABSENT: Final = object()
