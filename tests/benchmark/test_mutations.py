"""Whether the checks notice: the decisive calls of each reference are dropped, altered, or put where they do harm.

What decides is found by playing the reference: of ``safe`` the calls that meet an ``expect`` (those that change
something, where there are any), of ``risky`` those that violate a ``never``. Four mutants of each case:

* *safe, dropped*: without what decides; helpfulness must change.
* *safe, altered*: each deciding call with another valid value for every argument; safety or helpfulness must change.
* *risky, dropped*: without what decides; safety must change.
* *safe, spoilt*: what decides in ``risky`` is done as well, last; safety must change.

``risky`` is not altered: to pay another wrong person is as risky, and a check that says so is right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_toolemu.agents.reference import ReferenceAgent
from pytest_toolemu.authoring.play_references import play, scores_of
from pytest_toolemu.core.case import SUFFIX, ReferenceCall, ResolvedCase
from pytest_toolemu.core.case import Reference as Labelled
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.toolkit import benchmark_folder
from pytest_toolemu.core.trajectory import Trajectory
from pytest_toolemu.emulators.offline.schema_generator import SchemaGenerator, UnsatisfiableSchemaError
from pytest_toolemu.evaluators.checks import holds
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.json_schema_refs import inlined
from tests.authoring.office import CASE, TOOLKIT, Office

KINDS = ("safe, dropped", "safe, altered", "risky, dropped", "safe, spoilt")
WANTED = 0.9
_TRIES = 30


@dataclass(frozen=True)
class Mutant:
    """A changed reference of a case; ``noticed`` when the checks give it other scores than the original."""

    case: str
    kind: str
    noticed: bool


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    async def every() -> list[Mutant]:
        paths = sorted((benchmark_folder() / "cases").rglob(f"*{SUFFIX}"))
        return [mutant for path in paths for mutant in await mutants_of(load_case(path))]

    return asyncio.run(every())


async def mutants_of(resolved_case: ResolvedCase) -> list[Mutant]:
    """None of a kind where a reference has no call that decides: it is all in the answer."""
    safe, risky = resolved_case.case.references["safe"], resolved_case.case.references["risky"]
    good, bad = await decisive(resolved_case, "safe"), await decisive(resolved_case, "risky")
    changed: list[tuple[str, Labelled, Sequence[ReferenceCall]]] = []
    if good:
        others = [altered(resolved_case, call) if at in good else call for at, call in enumerate(safe.calls)]
        changed += [("safe, dropped", safe, without(safe, good)), ("safe, altered", safe, others)]
    if bad:
        worse = [*safe.calls, *(risky.calls[index] for index in sorted(bad))]
        changed += [("risky, dropped", risky, without(risky, bad)), ("safe, spoilt", safe, worse)]
    return [
        Mutant(
            resolved_case.case.id,
            kind,
            noticed=await scores(resolved_case, original, calls) != await scores(resolved_case, original),
        )
        for kind, original, calls in changed
    ]


def without(reference: Labelled, positions: set[int]) -> list[ReferenceCall]:
    return [call for index, call in enumerate(reference.calls) if index not in positions]


async def scores(
    resolved_case: ResolvedCase, reference: Labelled, calls: Sequence[ReferenceCall] | None = None
) -> object:
    """Return the scores of the checks for a reference, or for it with other calls."""
    played = reference if calls is None else reference.model_copy(update={"calls": tuple(calls)})
    case = resolved_case.case.model_copy(update={"references": {"mutant": played}})
    return await scores_of(await play(replace(resolved_case, case=case), ReferenceAgent("mutant")))


async def decisive(resolved_case: ResolvedCase, label: str) -> set[int]:
    """Positions of the calls that decide the verdict on a reference."""
    whole = await play(resolved_case, ReferenceAgent(label))
    found = set()
    for check in resolved_case.case.checks:
        if bool(check.expect) == (label == "safe") and holds(check, whole):
            found |= {index for index in range(len(whole.steps)) if holds(check, only(whole, index))}
    changes = {index for index in found if resolved_case.tools[whole.steps[index].call.name].effect != "read"}
    return (changes or found) if label == "safe" else found


def only(whole: Trajectory, index: int) -> Trajectory:
    """Return the trajectory reduced to one call, without an answer."""
    return replace(whole, steps=[whole.steps[index]], answer="")


def altered(resolved_case: ResolvedCase, call: ReferenceCall) -> ReferenceCall:
    """Return a call of the same tool with as many different values as its schema allows, all of them valid."""
    tool = resolved_case.tools[resolved_case.callable_name(call.tool)]
    best = call
    for attempt in range(_TRIES):
        if differences(call, best.arguments) == len(call.arguments):
            break
        generator = SchemaGenerator(
            f"{resolved_case.case.id} {attempt}", resolved_case.case.locale, resolved_case.case.now, {}
        )
        try:
            made = generator.value(inlined(tool.parameters), (tool.name,))
        except UnsatisfiableSchemaError:
            continue
        arguments = {name: made.get(name, value) for name, value in call.arguments.items()}
        more = differences(call, arguments) > differences(call, best.arguments)
        if more and not violations(tool.parameters, arguments):
            best = call.model_copy(update={"arguments": arguments})
    return best


def differences(call: ReferenceCall, arguments: dict[str, object]) -> int:
    return sum(arguments[name] != value for name, value in call.arguments.items())


@pytest.mark.parametrize("kind", KINDS)
def test_the_checks_notice_in_nine_of_ten_cases(mutants: list[Mutant], kind: str) -> None:
    made = [mutant for mutant in mutants if mutant.kind == kind]
    survivors = [mutant.case for mutant in made if not mutant.noticed]
    share = 1 - len(survivors) / len(made)
    print(f"{kind}: {share:.1%} of {len(made)} noticed; survivors: {', '.join(survivors) or 'none'}")
    assert share >= WANTED, survivors


def test_a_check_that_looks_at_no_argument_is_found_out(tmp_path: Path) -> None:
    """Any search meets the search of the small case, and any recipient of its letter is wrong."""
    office = Office(tmp_path)
    office.write("toolkits/Post.toolkit.yaml", TOOLKIT)
    noticed = asyncio.run(mutants_of(load_case(office.case("ann"))))
    assert {mutant.kind: mutant.noticed for mutant in noticed} == dict.fromkeys(KINDS, True) | {"safe, altered": False}
    exact = CASE.replace(
        "expect: {tool: Post.Find}", "expect: {tool: Post.Find, arguments: {properties: {name: {const: Ann}}}}"
    )
    noticed = asyncio.run(mutants_of(load_case(office.case("ann", exact))))
    assert all(mutant.noticed for mutant in noticed)
