"""What agents, emulators and evaluators are shown of a case, said alike to all of them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from pytest_toolemu.toolkit import Tool, Toolkit

# Not strftime's, which depend on the locale of the process.
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def clock(now: datetime) -> str:
    """``Tuesday, 2022-02-22, 11:37 (UTC-05:00)``."""
    return f"{_WEEKDAYS[now.weekday()]}, {now:%Y-%m-%d, %H:%M} (UTC{now.isoformat()[-6:]})"


def quoted(value: Any) -> str:
    """A value as one line of JSON; control, formatting and other invisible characters are escaped, letters are not."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def outline(toolkit: Toolkit) -> str:
    """A toolkit in short: what each tool is for, takes, returns, and which errors it may answer with."""
    head = f"{toolkit.name}: {_line(toolkit.description)}"
    return "\n".join([head, *(_tool(toolkit.callable_name(tool), tool) for tool in toolkit.tools)])


def _tool(name: str, tool: Tool) -> str:
    errors = "; ".join(f"{error} ({_line(condition)})" for error, condition in tool.errors.items())
    signature = f"* {name}{_members(tool.parameters, '()')} -> {_members(tool.returns)}: {_line(tool.description)}"
    return f"{signature} Errors: {errors}" if errors else signature


def _line(text: str) -> str:
    return " ".join(text.split())


def _members(schema: dict[str, Any], brackets: str = "{}") -> str:
    required = schema.get("required", ())
    members = [
        f"{key}{'' if key in required else '?'}: {type_text(member)}"
        for key, member in schema.get("properties", {}).items()
    ]
    return f"{brackets[0]}{', '.join(members)}{brackets[1]}"


def type_text(schema: Any) -> str:
    """A JSON Schema as a short type: ``{id: string, tags?: [string], state: "open" | "closed"}``."""
    if not isinstance(schema, dict):
        return "any"
    if choices := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return " | ".join(quoted(choice) for choice in choices)
    if variants := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(type_text(variant) for variant in variants)
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kinds = schema.get("type", "any")
    return " | ".join(_kind_text(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _kind_text(kind: str, schema: dict[str, Any]) -> str:
    if kind == "array":
        return f"[{type_text(schema.get('items'))}]"
    if kind == "object":
        return _members(schema) if schema.get("properties") else "object"
    return f"{kind} ({schema['format']})" if "format" in schema else kind
