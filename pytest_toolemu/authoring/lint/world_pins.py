"""Finds pins that rows make unnecessary, and pins that hide a change of the rows."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.core.call_patterns import form_of
from pytest_toolemu.core.case import Pin, ResolvedCase
from pytest_toolemu.core.world.world import World
from pytest_toolemu.errors import OpenEntityError, WorldError
from pytest_toolemu.formats.json_schema import conforms


def world_pins(resolved_case: ResolvedCase) -> Iterator[LintRemark]:
    """Yield remarks on pins of tools that the rows of the case answer."""
    case = resolved_case.case
    if not case.world or not case.pins:
        return
    plans = World.of(resolved_case)
    for index, pin in enumerate(case.pins):
        plan = plans.plan(pin.tool)
        if plan is None:
            continue
        if pin.returns is not None and plan.writes:
            problem = f"a call of {pin.tool} that this pin answers changes no row, so queries of the state miss it"
            yield LintRemark("pinned-change", ("pins", index), f"{problem}; remove the pin, or pin an error")
        elif pin.nth is None and _is_answered_equally(resolved_case, pin):
            yield LintRemark("redundant-pin", ("pins", index), "the rows give the same result; remove the pin")


def _is_answered_equally(resolved_case: ResolvedCase, pin: Pin) -> bool:
    """Return whether rows answer the call as the pin does; False for a pin that does not give all arguments."""
    parameters = resolved_case.tools_in_files[pin.tool].parameters
    if form_of(pin.arguments, parameters) != "plain" or not conforms(parameters, pin.arguments):
        return False
    try:
        content = World.of(resolved_case).call(pin.tool, pin.arguments, 0)
    except (OpenEntityError, WorldError):
        return False
    return content == ({"error": pin.error} if pin.error is not None else pin.returns)
