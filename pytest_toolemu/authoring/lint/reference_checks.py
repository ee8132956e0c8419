"""Finds pins that never answer, and checks that can never match."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.authoring.lint.schema_compatibility import covers, in_all, incompatibilities
from pytest_toolemu.core.case import Case, ResolvedCase
from pytest_toolemu.core.case_loading import checks_of
from pytest_toolemu.core.case_rules import CallPattern, Pin, call_schema, is_schema
from pytest_toolemu.formats.json_schema_refs import inlined
from pytest_toolemu.formats.yaml_document import Loc


def reference_checks(resolved_case: ResolvedCase) -> Iterator[LintRemark]:
    """Yield remarks on pins and checks that contradict the tools' schemas, or each other."""
    used = {pin.tool for pin in resolved_case.case.pins} | {
        name for _, pattern in _calls(resolved_case.case) for name in pattern.tools
    }
    tools = resolved_case.tools_in_files
    # Recursive parts stay open: what is not examined must not count as impossible.
    parameters = {name: inlined(tools[name].parameters, end=True) for name in used}
    for index, pin in enumerate(resolved_case.case.pins):
        yield from _arguments(pin, (pin.tool,), parameters, ("pins", index, "arguments"))
    yield from _shadowed(resolved_case.case, parameters)
    for loc, pattern in _calls(resolved_case.case):
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


def _calls(case: Case) -> Iterator[tuple[Loc, CallPattern]]:
    for loc, check in checks_of(case):
        for kind, pattern in (("never", check.never), ("unless", check.unless), ("expect", check.expect)):
            if pattern is not None and pattern.tools:
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
