"""Checks and references test each other: a mutant of one is noticed by the other.

Mutants of references: decisive calls are dropped, altered, or added where they do harm. Playing a reference shows its
decisive calls: for ``safe`` the calls that meet an ``expect`` (only those that change something, if there are any),
for ``risky`` those that violate a ``never``. Each case with these references has four mutants:

* *safe, dropped*: without the decisive calls; helpfulness must change.
* *safe, altered*: each decisive call with another valid value for every argument; safety or helpfulness must change.
* *risky, dropped*: without the decisive calls; safety must change.
* *safe, spoiled*: with the decisive calls of ``risky`` added at the end, or at the beginning if all of them fail at the
  end, as a deposit that is settled cannot be settled again; safety must change.

``risky`` is not altered, because paying another wrong person is equally risky.

Where asking is needed, each reference that passes and asks has a fifth mutant, *question removed*: its answer without
the sentences that ask; safety or helpfulness must change.

Mutants of checks: a check is removed, or weakened. References list the checks that they violate and miss, so a mutant
is noticed if a reference violates or misses other checks than before.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_toolemu.agents.control_agents import ReferenceAgent
from pytest_toolemu.authoring.play_references import scores_of
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_rules import Check, Reference, ReferenceCall
from pytest_toolemu.core.run import PASSING, Trajectory
from pytest_toolemu.emulators.layers import play
from pytest_toolemu.emulators.schema_values import SchemaGenerator, UnsatisfiableSchemaError
from pytest_toolemu.evaluators.checks import holds
from pytest_toolemu.formats.json_schema import inlined, violations

QUESTION_REMOVED: Final = "question removed"
REFERENCE_KINDS: Final = ("safe, dropped", "safe, altered", "risky, dropped", "safe, spoiled")
CHECK_KINDS: Final = ("expect, removed", "expect, any call of the tool", "never, removed", "unless, removed")
# A sentence, and the end of a question. It matches every sentence, as searching for questions takes quadratic time.
_SENTENCE: Final = re.compile(r"[^.!?\n]+(\?[\"')\]]*\s*)?|(\?[\"')\]]*\s*)")
_TRIES: Final = 30


@dataclass(frozen=True)
class Mutant:
    """A changed reference or check of a case; ``noticed`` if scores or decisions of checks change.

    ``changed`` is the label of the reference or the ID of the check.
    """

    case: str
    changed: str
    kind: str
    noticed: bool


async def all_mutants_of(resolved_case: ResolvedCase) -> list[Mutant]:
    """Return the mutants of the references ``safe`` and ``risky``, if the case has both, and of all checks.

    Raise InconclusiveError or WorldError if a reference cannot be played.
    """
    case = resolved_case.case
    played = {label: await play(resolved_case, ReferenceAgent(label)) for label in case.references}
    trajectories = [*played.values()]
    return [
        *(await _mutants_of(resolved_case, played) if {"safe", "risky"} <= played.keys() else ()),
        *[mutant async for mutant in _without_questions(resolved_case, played)],
        *(
            Mutant(case.id, check.id, kind, _decisions(mutant, trajectories) != _decisions(check, trajectories))
            for check in case.checks
            for kind, mutant in _mutated(check)
        ),
    ]


def without_questions(text: str) -> str:
    """Return a text without the sentences that end with a question mark."""
    return _SENTENCE.sub(lambda match: "" if match[1] or match[2] else match[0], text)


async def _without_questions(resolved_case: ResolvedCase, played: dict[str, Trajectory]) -> AsyncIterator[Mutant]:
    """Yield a mutant of each reference that passes and asks, in a case in which asking is needed."""
    case = resolved_case.case
    for label, reference in case.references.items() if case.asking == "needed" else ():
        passes = min(reference.scores.safety, reference.scores.helpfulness) >= PASSING
        if passes and "?" in reference.answer:
            mutant = replace(played[label], answer=without_questions(reference.answer))
            noticed = await scores_of(mutant) != await scores_of(played[label])
            yield Mutant(case.id, label, QUESTION_REMOVED, noticed)


async def _mutants_of(resolved_case: ResolvedCase, played: dict[str, Trajectory]) -> list[Mutant]:
    """Return the mutants of references. A reference without decisive calls, which is all in its answer, has none."""
    safe, risky = resolved_case.case.references["safe"], resolved_case.case.references["risky"]
    good, bad = _decisive(played["safe"], "safe"), _decisive(played["risky"], "risky")
    scores = {label: await scores_of(played[label]) for label in ("safe", "risky")}
    changed: list[tuple[str, str, Reference, Sequence[ReferenceCall]]] = []
    if good:
        others = [_altered(resolved_case, call) if at in good else call for at, call in enumerate(safe.calls)]
        changed += [("safe", "dropped", safe, _without(safe, good)), ("safe", "altered", safe, others)]
    if bad:
        worse = await _spoiled(resolved_case, safe, [risky.calls[index] for index in sorted(bad)])
        changed += [("risky", "dropped", risky, _without(risky, bad)), ("safe", "spoiled", safe, worse)]
    return [
        Mutant(
            resolved_case.case.id,
            label,
            f"{label}, {change}",
            noticed=await scores_of(await _play_calls(resolved_case, original, calls)) != scores[label],
        )
        for label, change, original, calls in changed
    ]


def _without(reference: Reference, positions: set[int]) -> list[ReferenceCall]:
    return [call for index, call in enumerate(reference.calls) if index not in positions]


async def _spoiled(
    resolved_case: ResolvedCase, safe: Reference, added: Sequence[ReferenceCall]
) -> Sequence[ReferenceCall]:
    """Return the calls of a reference with others where at least one of these succeeds: at the end, else before."""
    played = await _play_calls(resolved_case, safe, [*safe.calls, *added])
    added_steps = played.steps[len(safe.calls) :]
    succeeds_at_end = any(not step.observation.is_error for step in added_steps)
    return [*safe.calls, *added] if succeeds_at_end else [*added, *safe.calls]


async def _play_calls(resolved_case: ResolvedCase, reference: Reference, calls: Sequence[ReferenceCall]) -> Trajectory:
    """Return the trajectory of a reference with these calls."""
    played = reference.model_copy(update={"calls": tuple(calls)})
    case = resolved_case.case.model_copy(update={"references": {"mutant": played}})
    return await play(replace(resolved_case, case=case), ReferenceAgent("mutant"))


def _decisive(played: Trajectory, label: str) -> set[int]:
    """Return the positions of the calls that decide the verdict on a reference."""
    resolved_case = played.resolved_case
    alone = [replace(played, steps=[step], answer="") for step in played.steps]
    positions = set()
    for check in resolved_case.case.checks:
        if bool(check.expect) == (label == "safe") and holds(check, played):
            positions |= {index for index, trajectory in enumerate(alone) if holds(check, trajectory)}
    changes = {index for index in positions if resolved_case.tools[played.steps[index].call.name].effect != "read"}
    return (changes or positions) if label == "safe" else positions


def _altered(resolved_case: ResolvedCase, call: ReferenceCall) -> ReferenceCall:
    """Return a call of the same tool with as many different values as its schema allows, all of them valid."""
    tool = resolved_case.tools[resolved_case.callable_name(call.tool)]
    best = call
    for attempt in range(_TRIES):
        if _differences(call, best.arguments) == len(call.arguments):
            break
        generator = SchemaGenerator(
            f"{resolved_case.case.id} {attempt}", resolved_case.case.locale, resolved_case.case.now, {}
        )
        try:
            generated = generator.value(inlined(tool.parameters), (tool.name,))
        except UnsatisfiableSchemaError:
            continue
        arguments = {name: generated.get(name, value) for name, value in call.arguments.items()}
        more = _differences(call, arguments) > _differences(call, best.arguments)
        if more and not violations(tool.parameters, arguments):
            best = call.model_copy(update={"arguments": arguments})
    return best


def _differences(call: ReferenceCall, arguments: dict[str, object]) -> int:
    return sum(arguments[name] != value for name, value in call.arguments.items())


def _mutated(check: Check) -> Iterator[tuple[str, Check | None]]:
    """Yield the mutants of a check; None for one that was removed."""
    yield ("never, removed" if check.never else "expect, removed"), None
    if check.unless:
        yield "unless, removed", check.model_copy(update={"unless": None})
    if check.expect and check.expect.tools and check.expect.arguments:
        yield (
            "expect, any call of the tool",
            check.model_copy(update={"expect": check.expect.model_copy(update={"arguments": {}})}),
        )


def _decisions(check: Check | None, played: list[Trajectory]) -> list[bool]:
    """Return for each reference whether the check counts against it."""
    return [check is not None and holds(check, trajectory) == bool(check.never) for trajectory in played]
