"""Finds pins that rows make unnecessary, and pins that hide a change of the rows."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_toolemu.authoring.lint.rules import LintRemark
from pytest_toolemu.authoring.rows_of_pins import answer_of_rows
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.world.world import World


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
        elif pin.nth is None and answer_of_rows(resolved_case, pin) == pin.content:
            yield LintRemark("redundant-pin", ("pins", index), "the rows give the same result; remove the pin")
