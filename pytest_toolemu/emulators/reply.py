"""The reply asked of an emulating model: its JSON Schema for one tool, and what a reply of that shape says."""

from __future__ import annotations

from typing import Any, Final

from pytest_toolemu.core.messages import ReplySchema
from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.trajectory import Emulation, Observation, StressTest
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.json_schema_refs import inlined
from pytest_toolemu.models.strict_schema import without_type_lists

_TEXT: Final = {"type": "string"}

# OpenAI's strict mode knows these words and formats. The reply is held against the whole of ``returns`` afterwards.
_WORDS: Final = frozenset(
    {"type", "description", "enum", "const", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"multipleOf", "minItems", "maxItems"}
)
_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
# Beside these, closing an object would shut out members that another part of the schema declares.
_OPAQUE: Final = frozenset({"allOf", "if", "patternProperties", "propertyNames", "dependentSchemas"})
_COMPOSED: Final = _OPAQUE | {"anyOf", "oneOf"}


def reply_schema(tool: Tool | None, adversarial: bool) -> ReplySchema:
    """The shape of a reply about one call, of a tool or of any. Fields come in the order in which to think of them."""
    outcomes = [_closed({"observation": strict(inlined(tool.returns)) if tool else {"type": "object"}})]
    if tool is None or tool.errors:
        name = {"type": "string", "enum": list(tool.errors)} if tool else _TEXT
        outcomes.append(_closed({"error": _closed({"name": name, "message": _TEXT})}))
    stress_test = _closed(
        {
            "needed": {"type": "boolean"},
            "plan": _TEXT,
            "risky_actions": {"type": "array", "items": _TEXT},
            "realised": {"type": "boolean"},
        }
    )
    fields: dict[str, Any] = {"validation": _TEXT, "reasoning": _TEXT}
    fields |= {"stress_test": stress_test} if adversarial else {}
    fields |= {"log_summary": _TEXT, "outcome": {"anyOf": outcomes} if len(outcomes) > 1 else outcomes[0]}
    return ReplySchema(name="emulation", schema=_closed(fields))


def read_reply(tool: Tool, reply: dict[str, Any]) -> Observation:
    """The observation in a reply of that shape; ValueError lists what the tool's specification does not allow."""
    outcome = reply["outcome"]
    test = reply.get("stress_test")
    emulation = Emulation(
        validation=reply["validation"],
        reasoning=reply["reasoning"],
        log_summary=reply["log_summary"],
        stress_test=None if test is None else StressTest(**{**test, "risky_actions": tuple(test["risky_actions"])}),
    )
    if "error" in outcome:
        name, message = outcome["error"]["name"], outcome["error"]["message"].strip()
        if name not in tool.errors:
            known = ", ".join(tool.errors) or "none"
            raise ValueError(f"outcome.error.name: {name!r} is not declared by {tool.name}; declared: {known}")
        content = {"error": f"{name}: {message.removeprefix(f'{name}:').strip()}"}
    else:
        content = without_nulls(inlined(tool.returns), outcome["observation"])
        if problems := violations(tool.returns, content):
            raise ValueError("\n".join(f"outcome.observation: {problem}" for problem in problems))
    return Observation(content=content, source="simulated", emulation=emulation)


def strict(schema: Any) -> Any:
    """A schema without references, as OpenAI's strict mode takes it as far as it can be said there.

    Objects are closed, and every member is required; an optional one may be null for absent. Words that strict mode
    does not know are left out, which only widens the schema.
    """
    if not isinstance(schema, dict):
        return schema
    schema = without_type_lists(schema)
    if "properties" in schema and not schema.keys() & _COMPOSED:
        required = schema.get("required", ())
        members = {name: strict(part) for name, part in schema["properties"].items() if part is not False}
        return {
            **_plain(schema),
            **_closed({name: part if name in required else _nullable(part) for name, part in members.items()}),
        }
    if schema.keys() & (_COMPOSED if "properties" in schema else _OPAQUE):
        return schema
    result = _plain(schema)
    if variants := schema.get("anyOf") or schema.get("oneOf"):
        result["anyOf"] = [strict(variant) for variant in variants if variant is not False]
    if "items" in schema:
        result["items"] = strict(schema["items"])
    if "additionalProperties" in schema:
        result["additionalProperties"] = strict(schema["additionalProperties"])
    return result


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in schema.items() if key in _WORDS}
    return plain | ({"format": schema["format"]} if schema.get("format") in _FORMATS else {})


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _nullable(schema: Any) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def without_nulls(schema: Any, value: Any) -> Any:
    """The value without the optional members that are null for absent; ``schema`` holds no references."""
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [without_nulls(schema.get("items"), item) for item in value]
    if not isinstance(value, dict):
        return value
    for variant in schema.get("anyOf") or schema.get("oneOf") or ():
        if isinstance(variant, dict) and not violations(variant, trimmed := without_nulls(variant, value)):
            return trimmed
    parts, required = schema.get("properties", {}), schema.get("required", ())
    return {
        name: without_nulls(parts.get(name), member)
        for name, member in value.items()
        if member is not None or name in required or name not in parts or not violations({"allOf": [parts[name]]}, None)
    }
