"""Prompts: one ``*.md.j2`` file each, rendered strictly and identified by a hash.

In every conversation, constant text comes first and variable text last, so that providers can cache the beginning. A
Jinja comment such as ``{# EM-14 #}`` names the requirement that the text below it meets; a test checks that every
requirement is met. A paragraph that is sent often is one line: most line breaks are a token of their own.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from datetime import datetime
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from pytest_toolemu.core.toolkit import Tool, Toolkit
from pytest_toolemu.formats.json_schema import members_text, once_per_object
from pytest_toolemu.formats.text import compact_json

if TYPE_CHECKING:
    import jinja2


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(source),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # text for models, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )


def source(name: str) -> str:
    """Read the template of a prompt; ``name`` is its path without ``.md.j2``."""
    return (resources.files(__package__) / f"{name}.md.j2").read_text(encoding="utf-8")


def render(name: str, /, **values: Any) -> str:
    """Render a prompt; a value that the template uses and the caller does not give is an error."""
    return _environment().get_template(name).render(**values).strip()


@functools.cache
def parts(name: str) -> tuple[str, ...]:
    """Return the names of a prompt and of all prompts that it includes, sorted."""
    import jinja2.meta

    names, pending = set(), [name]
    while pending:
        current = pending.pop()
        names.add(current)
        parsed = _environment().parse(source(current))
        pending += [str(part) for part in jinja2.meta.find_referenced_templates(parsed) if part not in names]
    return tuple(sorted(names))


@functools.cache
def prompt_hash(name: str) -> str:
    """Return the SHA-256 of a prompt and all it includes: verdicts under different hashes are not comparable."""
    return hashlib.sha256("\0".join(source(part) for part in parts(name)).encode()).hexdigest()


# Not those of strftime, which depend on the locale of the process.
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def clock(now: datetime) -> str:
    """Format a time as ``Tuesday, 2022-02-22, 11:37 (UTC-05:00)``."""
    return f"{_WEEKDAYS[now.weekday()]}, {now:%Y-%m-%d, %H:%M} (UTC{now.isoformat()[-6:]})"


_once: Final = once_per_object(4096)  # hundreds of requests describe the same toolkits and tools


@_once
def outline(toolkit: Toolkit) -> str:
    """Outline a toolkit: the purpose, arguments, results, and errors of each tool."""
    return _lines(toolkit, toolkit.description, _tool_outline)


@_once
def sketch(toolkit: Toolkit) -> str:
    """Sketch a toolkit: its first sentence, and the purpose and the names of arguments and results of each tool."""
    return _lines(toolkit, toolkit.description.partition(". ")[0], _tool_sketch)


@_once
def names(toolkit: Toolkit) -> str:
    """Name the tools of a toolkit, with its first sentence."""
    tools = ", ".join(tool.name for tool in toolkit.tools)
    return f"{toolkit.name} ({_line(toolkit.description.partition('. ')[0]).rstrip('.')}): {tools}"


@_once
def tool_text(tool: Tool) -> str:
    """Describe a tool completely except for its description; the results are a JSON Schema."""
    errors = "; ".join(f"{error} ({_line(condition)})" for error, condition in tool.errors.items())
    parts = [
        members_text(tool.parameters, "()", explain="all"),
        tool.effect,
        *([f"errors: {errors}"] if errors else []),
        f"returns {returns_text(tool)}",
    ]
    return "; ".join(parts)


@_once
def described_tool_text(tool: Tool) -> str:
    """Describe a tool completely."""
    return f"{_line(tool.description)} {tool_text(tool)}"


@_once
def returns_text(tool: Tool) -> str:
    """Return the JSON Schema of what a tool returns, on one line."""
    return compact_json(_open(tool.returns))


def _open(schema: Any) -> Any:
    """Remove ``additionalProperties: false`` from a schema: a rule of the prompt says so for all objects."""
    if isinstance(schema, list):
        return [_open(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    is_closed = schema.get("additionalProperties") is False
    return {key: _open(part) for key, part in schema.items() if not (is_closed and key == "additionalProperties")}


def _lines(toolkit: Toolkit, description: str, line: Callable[[str, Tool], str]) -> str:
    head = f"{toolkit.name}: {_line(description)}"
    return "\n".join([head, *(line(toolkit.callable_name(tool), tool) for tool in toolkit.tools)])


def _tool_sketch(name: str, tool: Tool) -> str:
    arguments, results = members_text(tool.parameters, "()", types=False), members_text(tool.returns, types=False)
    return f"* {name}{arguments} -> {results}: {_line(tool.description)}"


def _tool_outline(name: str, tool: Tool) -> str:
    errors = "; ".join(f"{error} ({_line(condition)})" for error, condition in tool.errors.items())
    signature = (
        f"* {name}{members_text(tool.parameters, '()')} -> {members_text(tool.returns)}: {_line(tool.description)}"
    )
    return f"{signature} Errors: {errors}" if errors else signature


def _line(text: str) -> str:
    return " ".join(text.split())
