"""Pins that never answer, and checks that can never fire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_toolemu.authoring.lint.fit import covers, in_all, misfits
from pytest_toolemu.authoring.lint.rules import Remark
from pytest_toolemu.case import Case, Pattern, Pin, World
from pytest_toolemu.documents import Loc
from pytest_toolemu.emulators.references import inlined
from pytest_toolemu.toolkit import callables


def firing(world: World) -> Iterator[Remark]:
    """What the tools' schemas and the pins say about pins and checks."""
    used = {pin.tool for pin in world.case.pins} | {name for _, pattern in _calls(world.case) for name in pattern.tools}
    named = {f"{kit.name}.{tool.name}": tool for _, kit, tool in callables(world.toolkits)}
    parameters = {name: inlined(named[name].parameters) for name in used}
    for index, pin in enumerate(world.case.pins):
        for loc, text in misfits(pin.arguments, parameters[pin.tool]):
            yield Remark("misfit", ("pins", index, "arguments", *loc), f"{pin.tool}: {text}")
    yield from _shadowed(world.case, parameters)
    for loc, pattern in _calls(world.case):
        for place, text in in_all(list(misfits(pattern.arguments, parameters[name])) for name in pattern.tools):
            yield Remark("misfit", (*loc, "arguments", *place), f"{' or '.join(pattern.tools)}: {text}")
        failing = [_failing(name, pattern, world.case.pins, parameters[name]) for name in pattern.tools]
        if all(failing):
            told = f"{' and '.join(pattern.tools)} always fails here, by the pin {failing[0]!r}, and only successful"
            yield Remark("never-fires", (*loc, "tool"), f"{told} calls count; pin a result, or check the answer")


def _calls(case: Case) -> Iterator[tuple[Loc, Pattern]]:
    for index, check in enumerate(case.checks):
        for kind, pattern in (("never", check.never), ("unless", check.unless), ("expect", check.expect)):
            if pattern is not None and pattern.tools:
                yield ("checks", index, kind), pattern


def _shadowed(case: Case, parameters: dict[str, dict[str, Any]]) -> Iterator[Remark]:
    for index, pin in enumerate(case.pins):
        for earlier, first in enumerate(case.pins[:index]):
            if first.tool == pin.tool and _takes_all(first, pin, parameters[pin.tool]):
                told = f"pins[{earlier}] answers every call of {pin.tool} that this pin is for; put this one before it"
                yield Remark("shadowed-pin", ("pins", index), f"{told}, or remove one of them")
                break


def _takes_all(first: Pin, later: Pin, parameters: dict[str, Any]) -> bool:
    """Whether the first pin answers every call that the later one is for."""
    if first.nth is not None:
        return first.nth == later.nth and first.arguments == later.arguments
    return covers(first.arguments, later.arguments, parameters)


def _failing(name: str, pattern: Pattern, pins: tuple[Pin, ...], parameters: dict[str, Any]) -> str | None:
    """The error that every call of the tool gets which the pattern is about; None where one may succeed."""
    for pin in pins:
        if pin.tool == name:
            if pin.error is None:
                return None
            if pin.nth is None and covers(pin.arguments, pattern.arguments, parameters):
                return pin.error
    return None
