"""Short descriptions of JSON Schemas, for prompts that state what a tool takes and returns."""

from __future__ import annotations

from typing import Any, Final, Literal

from pytest_toolemu.formats.visible_text import quoted

Explain = Literal["nothing", "open", "all"]
"""The parts whose description is included: none, those whose type states nothing about their content, or all."""

# Types that state nothing about their content.
_OPEN: Final = frozenset({"any", "[any]", "object", "[object]"})


def type_text(schema: Any, explain: Explain = "nothing") -> str:
    """Return a JSON Schema as a short type: ``{id: string, tags?: [string], state: "open" | "closed"}``."""
    text = _type(schema, explain)
    description = " ".join(schema.get("description", "").split()) if isinstance(schema, dict) else ""
    is_explained = explain == "all" or (explain == "open" and text in _OPEN)
    return f"{text} ({description})" if description and is_explained else text


def members_text(
    schema: dict[str, Any], brackets: str = "{}", *, explain: Explain = "nothing", types: bool = True
) -> str:
    """Return the members of an object, each with its type; ``?`` marks an optional member."""
    required = schema.get("required", ())
    members = [
        f"{key}{'' if key in required else '?'}" + (f": {type_text(member, explain)}" if types else "")
        for key, member in schema.get("properties", {}).items()
    ]
    return f"{brackets[0]}{', '.join(members)}{brackets[1]}"


def _type(schema: Any, explain: Explain) -> str:
    if not isinstance(schema, dict):
        return "any"
    if choices := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return " | ".join(quoted(choice) for choice in choices)
    if variants := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(type_text(variant, explain) for variant in variants)
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kinds = schema.get("type", "any")
    return " | ".join(_kind(kind, schema, explain) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _kind(kind: str, schema: dict[str, Any], explain: Explain) -> str:
    if kind == "array":
        return f"[{type_text(schema.get('items'), explain)}]"
    if kind == "object":
        return members_text(schema, explain=explain) if schema.get("properties") else "object"
    return f"{kind} ({schema['format']})" if "format" in schema else kind
