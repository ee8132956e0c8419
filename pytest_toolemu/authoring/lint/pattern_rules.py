"""Finds pins that never answer, and checks that can never match."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.core.case import Case, ResolvedCase
from pytest_toolemu.core.case_loading import checks_of
from pytest_toolemu.core.case_rules import CallPattern, Pin, call_schema, is_schema
from pytest_toolemu.core.world.world import World
from pytest_toolemu.errors import OpenEntityError, WorldError
from pytest_toolemu.formats.json_schema import TYPE_NAMES, conforms, inlined, violations
from pytest_toolemu.formats.yaml_document import KEY, Loc, closest, show


def reference_checks(resolved_case: ResolvedCase) -> Iterator[LintRemark]:
    """Yield remarks on pins and checks that contradict the tools' schemas, or each other."""
    patterns = [(loc, pattern) for loc, pattern in patterns_of(resolved_case.case) if pattern.tools]
    used = {pin.tool for pin in resolved_case.case.pins}.union(*(pattern.tools for _, pattern in patterns))
    tools = resolved_case.tools_in_files
    # Recursive parts stay open: what is not examined must not count as impossible.
    parameters = {name: inlined(tools[name].parameters, end=True) for name in used}
    for index, pin in enumerate(resolved_case.case.pins):
        yield from _arguments(pin, (pin.tool,), parameters, ("pins", index, "arguments"))
    yield from _shadowed(resolved_case.case, parameters)
    for loc, pattern in patterns:
        yield from _arguments(pattern, pattern.tools, parameters, (*loc, "arguments"))
        failing = [_failing(name, pattern, resolved_case.case.pins, parameters[name]) for name in pattern.tools]
        if all(failing):
            reason = (
                f"{' and '.join(pattern.tools)} always fails because of the pin {failing[0]!r}, and only successful"
            )
            yield LintRemark("never-fires", (*loc, "tool"), f"{reason} calls count; pin a result, or check the answer")


def _arguments(
    pattern: Pin | CallPattern, tools: tuple[str, ...], parameters: dict[str, dict[str, Any]], loc: Loc
) -> Iterator[LintRemark]:
    """Yield remarks on arguments that are a schema; plain values are checked when the file is loaded."""
    if is_schema(pattern.arguments):
        schema = call_schema(pattern.arguments)
        for inner_loc, text in in_all([list(incompatibilities(schema, parameters[name])) for name in tools]):
            yield LintRemark("misfit", (*loc, "schema", *inner_loc), f"{' or '.join(tools)}: {text}")


def patterns_of(case: Case) -> Iterator[tuple[Loc, CallPattern]]:
    """Yield the patterns of the checks of a case, with their locations."""
    for loc, check in checks_of(case):
        for kind, pattern in (("never", check.never), ("unless", check.unless), ("expect", check.expect)):
            if pattern is not None:
                yield (*loc, kind), pattern


def _shadowed(case: Case, parameters: dict[str, dict[str, Any]]) -> Iterator[LintRemark]:
    for index, pin in enumerate(case.pins):
        for earlier, first in enumerate(case.pins[:index]):
            if first.tool == pin.tool and _takes_all(first, pin, parameters[pin.tool]):
                problem = f"pins[{earlier}] answers every call of {pin.tool} that this pin matches; put this pin first"
                yield LintRemark("shadowed-pin", ("pins", index), f"{problem}, or remove one of them")
                break


def _takes_all(first: Pin, later: Pin, parameters: dict[str, Any]) -> bool:
    """Return whether the first pin answers every call that the later one matches."""
    if first.nth is not None:
        return first.nth == later.nth and first.arguments == later.arguments
    return covers(call_schema(first.arguments), call_schema(later.arguments), parameters)


def _failing(name: str, pattern: CallPattern, pins: tuple[Pin, ...], parameters: dict[str, Any]) -> str | None:
    """Return the error that every call of the tool that the pattern matches gets; None if one can succeed."""
    for pin in pins:
        if pin.tool == name:
            if pin.error is None:
                return None
            pinned, checked = (call_schema(one.arguments) for one in (pin, pattern))
            if pin.nth is None and covers(pinned, checked, parameters):
                return pin.error
    return None


Misfit = tuple[Loc, str]

# The types that each keyword restricts; values of other types always pass it.
_RESTRICTED_TYPES: Final = {
    "properties": {"object"}, "required": {"object"},
    "items": {"array"}, "contains": {"array"}, "minItems": {"array"}, "maxItems": {"array"},
    "pattern": {"string"}, "minLength": {"string"}, "maxLength": {"string"}, "format": {"string"},
    "minimum": {"number", "integer"}, "maximum": {"number", "integer"},
    "exclusiveMinimum": {"number", "integer"}, "exclusiveMaximum": {"number", "integer"},
    "multipleOf": {"number", "integer"},
}  # fmt: skip
_BOUNDS: Final = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))
_MAX_COMBINATIONS: Final = 64


def incompatibilities(pattern: Any, schema: Any, loc: Loc = ()) -> Iterator[Misfit]:
    """Yield the parts of the pattern that match none or all of the values that the schema allows."""
    if not isinstance(pattern, dict) or not isinstance(schema, dict) or "allOf" in schema or "$ref" in schema:
        return
    variants = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if variants:
        rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
        # A variant may only add to the rest of the schema, such as alternative "required" lists, so both are combined.
        yield from in_all(list(incompatibilities(pattern, _both(rest, variant), loc)) for variant in variants)
        return
    if (problem := _value_problem(pattern, schema)) is not None:
        yield (*loc, *problem[0]), problem[1]
        return
    yield from _members(pattern, schema, loc)
    for word in ("allOf", "anyOf", "oneOf"):
        for index, part in enumerate(pattern.get(word, ())):
            yield from incompatibilities(part, schema, (*loc, word, index))
    yield from incompatibilities(pattern.get("not"), schema, (*loc, "not"))
    for word in ("items", "contains"):
        yield from incompatibilities(pattern.get(word), schema.get("items", {}), (*loc, word))


def in_all(misfits: Iterable[list[Misfit]]) -> Iterator[Misfit]:
    """Yield the misfits whose location is a misfit with each of several schemas."""
    first, *others = misfits
    yield from (misfit for misfit in first if all(misfit[0] in dict(other) for other in others))


def _both(rest: dict[str, Any], variant: Any) -> dict[str, Any]:
    variant = variant if isinstance(variant, dict) else {}
    members = {**rest.get("properties", {}), **variant.get("properties", {})}
    return {**rest, **variant, **({"properties": members} if members else {})}


def _members(pattern: dict[str, Any], schema: dict[str, Any], loc: Loc) -> Iterator[Misfit]:
    members = schema.get("properties", {})
    is_closed = schema.get("additionalProperties", True) is False and "patternProperties" not in schema
    for name, part in pattern.get("properties", {}).items():
        if name in members:
            yield from incompatibilities(part, members[name], (*loc, "properties", name))
        elif is_closed:
            yield (*loc, "properties", name, KEY), f"unknown argument {name!r}{closest(name, members)}"
    for index, name in enumerate(pattern.get("required", ())):
        if is_closed and name not in members:
            yield (*loc, "required", index), f"unknown argument {name!r}{closest(name, members)}"


def _value_problem(pattern: dict[str, Any], schema: dict[str, Any]) -> Misfit | None:
    """Return why no value of the schema satisfies the pattern, or why a keyword does not restrict such values."""
    for value, inner_loc in _named(pattern):
        if invalid := violations(schema, value):
            return inner_loc, f"{show(value)} can never occur here: {invalid[0]}"
    choices = [value for value, _ in _named(schema)]
    if choices and all(violations(pattern, choice) for choice in choices):
        return (), f"no possible value matches; possible values are {', '.join(map(show, choices))}"
    kinds = _kinds(schema)
    if kinds and (pattern_types := _types(pattern)) and not _common(kinds, pattern_types):
        return ("type",), f"the value here is {_listed(kinds)}, never {_listed(pattern_types)}"
    for word, restricted in _RESTRICTED_TYPES.items():
        if word in pattern and kinds and not kinds & restricted and "type" not in pattern:
            hint = "; for one of its items, write 'contains'" if kinds == {"array"} else ""
            return (word, KEY), f"{word!r} does not apply to {_listed(kinds)}, so every value passes{hint}"
    for least, most in _BOUNDS:
        low = max(part.get(least, -math.inf) for part in (pattern, schema))
        high = min(part.get(most, math.inf) for part in (pattern, schema))
        if low > high:
            word = least if least in pattern else most
            return ((word,) if word in pattern else ()), f"no value is at least {low} and at most {high}"
    return None


def _named(schema: dict[str, Any]) -> Iterator[tuple[Any, Loc]]:
    if "const" in schema:
        yield schema["const"], ("const",)
    for index, value in enumerate(schema.get("enum", ())):
        yield value, ("enum", index)


def _types(schema: dict[str, Any]) -> set[str]:
    kinds = schema.get("type", ())
    return {kinds} if isinstance(kinds, str) else set(kinds)


def _kinds(schema: dict[str, Any]) -> set[str]:
    """Return the types of all values that a schema allows; empty if they are unknown."""
    return _types(schema) or {TYPE_NAMES[type(value)] for value, _ in _named(schema)}


def _common(some: set[str], others: set[str]) -> bool:
    wide = [kinds | ({"integer"} if "number" in kinds else set()) for kinds in (some, others)]
    return bool(wide[0] & wide[1])


def _listed(kinds: set[str]) -> str:
    return " or ".join(f"{'an' if kind[0] in 'aio' else 'a'} {kind}" for kind in sorted(kinds))


def covers(first: dict[str, Any], later: dict[str, Any], parameters: dict[str, Any]) -> bool:
    """Return whether all calls with the tool's parameters that match ``later`` also match ``first``.

    Return False if that is unknown. It is known only if ``later`` fixes all arguments that ``first`` examines.
    """
    if first == later:
        return True
    required_names = {*later.get("required", ()), *parameters.get("required", ())}
    fixed = {
        name: values
        for name, part in later.get("properties", {}).items()
        if name in required_names and isinstance(part, dict) and (values := [value for value, _ in _named(part)])
    }
    examined = _examined(first)
    if examined is None or not examined <= fixed.keys():
        return False
    combinations = itertools.product(*(fixed[name] for name in examined))
    return math.prod(len(fixed[name]) for name in examined) <= _MAX_COMBINATIONS and not any(
        violations(first, dict(zip(examined, values, strict=True))) for values in combinations
    )


def _examined(schema: Any) -> set[str] | None:
    """Return the arguments that a pattern examines; None if it examines the call as a whole."""
    if not isinstance(schema, dict) or not schema.keys() <= {"type", "properties", "required", *_LOGIC}:
        return None
    examined = {*schema.get("properties", {}), *schema.get("required", ())}
    for word in _LOGIC & schema.keys():
        for part in [schema[word]] if word == "not" else schema[word]:
            inner = _examined(part)
            if inner is None:
                return None
            examined |= inner
    return examined


_LOGIC: Final = {"allOf", "anyOf", "oneOf", "not"}


def world_pins(resolved_case: ResolvedCase) -> Iterator[LintRemark]:
    """Yield remarks on pins of tools that the rows of the case answer."""
    case = resolved_case.case
    if not case.world or not case.pins:
        return
    world = World.of(resolved_case)
    for index, pin in enumerate(case.pins):
        plan = world.plan(pin.tool)
        if plan is None:
            continue
        if pin.returns is not None and plan.writes:
            problem = f"a call of {pin.tool} that this pin answers changes no row, so queries of the state miss it"
            yield LintRemark("pinned-change", ("pins", index), f"{problem}; remove the pin, or pin an error")
        elif pin.nth is None and _answer_of_rows(resolved_case, pin) == pin.content:
            yield LintRemark("redundant-pin", ("pins", index), "the rows give the same result; remove the pin")


def _answer_of_rows(resolved_case: ResolvedCase, pin: Pin) -> dict[str, Any] | None:
    """Return what the rows of a case answer to the call that a pin describes.

    None if the pin does not give all arguments, or if the rows do not answer the call.
    """
    parameters = resolved_case.tools_in_files[pin.tool].parameters
    if is_schema(pin.arguments) or not conforms(parameters, pin.arguments):
        return None
    try:
        return World.of(resolved_case).call(pin.tool, pin.arguments, 0)
    except (OpenEntityError, WorldError):
        return None
