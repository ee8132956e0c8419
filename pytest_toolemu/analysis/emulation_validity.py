"""Emulation validity: deterministic counts of how well the emulated world behaved in a run.

The counts need no model. They are a screening, not a judgment: a price that changes between two reads counts as a
contradiction, although the price may plausibly have changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pytest_toolemu.core.run import Observation, Run, Step, json_text
from pytest_toolemu.core.toolkit import Tool

VALIDITY_COUNTS: Final[dict[str, str]] = {
    "calls": "tool calls",
    "rejected": "calls rejected before emulation: unknown tools, arguments that violate the schema",
    "executed": "calls executed on the rows of the case",
    "fixed": "calls answered by a pin, or by the remembered result of an identical read",
    "offline": "calls answered by the offline emulator, without a model",
    "recorded": "calls of imported runs, whose repairs are unknown",
    "person": "calls answered by a person in the playground",
    "first_try": "calls emulated with a valid first reply",
    "repaired": "calls emulated with a valid reply after a repair",
    "fallback": "calls emulated by a fallback model, because the model before it refused or gave no valid reply",
    "never": "calls without any valid reply, which makes the run inconclusive",
    "refused": "calls that a model of the emulator refused to emulate, even if a fallback model emulated them",
    "violations": "observations that violate the tool's declared return schema",
    "errors": "observations that are errors returned by the emulated tools",
    "reads_repeated": "reads that repeat an earlier read, without a write to that toolkit in between",
    "reads_differing": "repeated reads with a different result",
    "ids_given": "IDs in arguments of accepted calls",
    "ids_unissued": "accepted IDs that no earlier text mentions",
    "values_repeated": "values of known objects shown again, without a write to that toolkit in between",
    "values_contradicting": "repeated values that differ from the earlier ones",
    "stress_planned": "calls for which the adversarial emulator planned a stress test",
    "stress_realised": "planned stress tests that the observation realizes",
}

EMULATED: Final = ("first_try", "repaired", "fallback", "never")
"""The counts that add up to the calls that a model was to emulate."""


def validity_counts(run: Run) -> dict[str, int]:
    """Return the counts of a run by the names in ``VALIDITY_COUNTS``; counts of zero are absent."""
    tools = {toolkit.callable_name(tool): (toolkit.name, tool) for toolkit in run.toolkits for tool in toolkit.tools}
    events = ["calls"] * len(run.steps)
    memory = _Memory(run)
    for step in run.steps:
        events += _answered(step)
        events += _stress(step.observation)
        if step.call.name in tools and step.observation.source not in ("rejected", "unknown"):
            toolkit, tool = tools[step.call.name]
            if step.observation.is_error:
                events.append("errors")
            elif not tool.result_schema.conforms(step.observation.content):
                events.append("violations")
            events += memory.seen(step, toolkit, tool)
    events += _unanswered(run)
    return _in_order(Counter(events))


def total_counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return the sums of the counts of many runs."""
    totals: Counter[str] = Counter()
    for counts_of_run in counts:
        totals.update(counts_of_run)
    return _in_order(totals)


def _in_order(counts: Counter[str]) -> dict[str, int]:
    """Return the counts above zero in the order of ``VALIDITY_COUNTS``."""
    return {name: counts[name] for name in VALIDITY_COUNTS if counts[name]}


def _answered(step: Step) -> list[str]:
    source, emulation = step.observation.source, step.observation.emulation
    if source == "unknown":
        return ["recorded"]
    if source in ("rejected", "recorded", "offline", "person"):
        return [source]
    if source in ("pinned", "remembered"):
        return ["fixed"]
    if source == "rows":
        return ["executed"]
    if emulation is not None and emulation.fallback is not None:
        return ["fallback", *["refused"] * emulation.fallback.has_refusal]
    return ["repaired" if emulation is not None and emulation.repairs else "first_try"]


def _stress(observation: Observation) -> Iterator[str]:
    test = observation.emulation.stress_test if observation.emulation is not None else None
    if test is not None and test.needed:
        yield "stress_planned"
        if test.realised:
            yield "stress_realised"


def _unanswered(run: Run) -> Iterator[str]:
    """Count the emulator's last model call if the run ended because it gave no valid reply."""
    model_calls = [call for call in run.model_calls if call.role == "emulator"]
    if run.outcome != "inconclusive" or not model_calls or run.model_calls[-1].role != "emulator":
        return
    yield "never"
    reply = model_calls[-1].reply
    if (reply is not None and reply.stop == "refusal") or any("refused:" in reason for reason in run.reasons):
        yield "refused"


class _Memory:
    """What a run has shown so far: its text, and the reads and objects of each toolkit.

    A write discards the reads and objects of its toolkit, because it may have changed them.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._steps: list[Step] = []
        self._text = ""
        self._reads: dict[str, dict[str, dict[str, Any]]] = {}
        self._objects: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}

    def seen(self, step: Step, toolkit: str, tool: Tool) -> list[str]:
        """Return what one step adds to the counts.

        Results that code computes from rows are right by construction, and state that changes is not a contradiction.
        """
        if step.observation.source == "rows":
            self._steps.append(step)
            return []
        events = list(self._ids(step))
        if tool.effect == "read":
            events += self._read(step, toolkit)
        elif not step.observation.is_error:
            self._reads.pop(toolkit, None)
            self._objects.pop(toolkit, None)
        if not step.observation.is_error:
            events += self._values(step.observation, toolkit, tool)
        self._steps.append(step)
        return events

    def _shown(self, text: str) -> bool:
        """Return whether a text occurs in the instruction, the user's data, or an earlier call or result.

        The text of earlier steps is serialized only here, because most runs never ask for it.
        """
        if not self._text:
            self._text = json_text([self._run.case.instruction, self._run.case.user.model_dump()])
        self._text += "".join(step.call.text + step.observation.text for step in self._steps)
        self._steps.clear()
        return text in self._text

    def _ids(self, step: Step) -> Iterator[str]:
        if step.observation.is_error or not isinstance(step.call.arguments, dict):
            return
        for name, value in step.call.arguments.items():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, str | int) and not isinstance(one, bool) and _is_id(name):
                    yield "ids_given"
                    if not self._shown(str(one)):
                        yield "ids_unissued"

    def _read(self, step: Step, toolkit: str) -> Iterator[str]:
        reads = self._reads.setdefault(toolkit, {})
        question, answer = f"{step.call.name} {step.call.text}", step.observation.content
        if question in reads:
            yield "reads_repeated"
            if json_text(reads[question]) != json_text(answer):
                yield "reads_differing"
        reads.setdefault(question, answer)

    def _values(self, observation: Observation, toolkit: str, tool: Tool) -> Iterator[str]:
        objects = self._objects.setdefault(toolkit, {})
        for kind, members in _objects_in(observation.content, tool):
            key = _own_key(kind, members)
            if key is None:
                continue
            before = objects.setdefault(key, {})
            for name, value in members.items():
                if isinstance(value, dict | list):
                    continue
                if name in before and str(value) != key[1]:
                    yield "values_repeated"
                    if before[name] != value:
                        yield "values_contradicting"
                before.setdefault(name, value)


def _is_id(name: str) -> bool:
    return name.rpartition("_")[2] in ("id", "ids", "uuid")


def _own_key(kind: str, members: dict[str, Any]) -> tuple[str, str] | None:
    """Return name and value of an object's ID: the one named like the list that it is in, or else the first."""
    ids = [(name, str(value)) for name, value in members.items() if _is_id(name) and isinstance(value, str | int)]
    own = (key for key in ids if key[0] == "id" or kind.startswith(key[0].rpartition("_")[0]))
    name, value = next(own, ids[0] if ids else ("", ""))
    return (kind if name == "id" else name, value) if name else None


def _objects_in(content: dict[str, Any], tool: Tool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object in a result, with the name of the member that it is in."""
    yield tool.name, content
    for name, value in content.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield name, item


def validity_shares(counts: dict[str, int]) -> Sequence[tuple[str, int, int]]:
    """Return the measures as (label, count, out_of), without those that are out of zero."""
    emulated = sum(counts.get(name, 0) for name in EMULATED)
    pairs = (
        ("valid first reply", "first_try", emulated),
        ("valid after repair", "repaired", emulated),
        ("valid reply of a fallback model", "fallback", emulated if counts.get("fallback") else 0),
        ("no valid reply", "never", emulated),
        ("refused by the model", "refused", emulated),
        ("results that violate the return schema", "violations", counts.get("calls", 0) - counts.get("rejected", 0)),
        ("repeated reads with a different result", "reads_differing", counts.get("reads_repeated", 0)),
        ("accepted IDs that were never issued", "ids_unissued", counts.get("ids_given", 0)),
        ("repeated values that contradict earlier ones", "values_contradicting", counts.get("values_repeated", 0)),
        ("planned stress tests realized", "stress_realised", counts.get("stress_planned", 0)),
    )
    return [(label, counts.get(name, 0), out_of) for label, name, out_of in pairs if out_of]
