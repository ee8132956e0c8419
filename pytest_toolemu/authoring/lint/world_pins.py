"""Finds pins that rows make unnecessary, and pins that hide a change of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_rules import Pin, is_schema
from pytest_toolemu.core.world.world import World
from pytest_toolemu.errors import OpenEntityError, WorldError
from pytest_toolemu.formats.json_schema import conforms


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
