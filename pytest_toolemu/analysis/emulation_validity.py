"""How well a world was emulated: deterministic counts over one run, beside every figure about the agent.

They need no model, and screen rather than judge: a price that changes between two reads is counted as a contradiction
although the world may really have moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pytest_toolemu.core.run import Run
from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.trajectory import Observation, Step, json_text
from pytest_toolemu.emulators.offline.world_state import id_kind, list_kind, own_key
from pytest_toolemu.formats.json_schema import conforms

VALIDITY_COUNTS: Final[dict[str, str]] = {
    "calls": "tool calls",
    "rejected": "turned away before any world saw them: unknown tools, arguments that break the schema",
    "fixed": "answered by a pin, or as the same read was before",
    "offline": "answered by the offline world, which no model makes",
    "recorded": "recorded elsewhere: what was mended before is not known",
    "first_try": "emulated, and valid at the first try",
    "repaired": "emulated, and valid after repair",
    "never": "never answered validly, so that the run is inconclusive",
    "refused": "refused by the emulator's model",
    "violations": "observations that break what the tool declares to return",
    "errors": "observations that are errors of the emulated tools",
    "reads_repeated": "reads that repeat an earlier one, with no write to that toolkit between",
    "reads_differing": "of these, answered differently",
    "ids_given": "ids that calls gave and the world accepted",
    "ids_unissued": "of these, ids that nothing before had mentioned",
    "values_repeated": "values of known things shown again, with no write to that toolkit between",
    "values_contradicting": "of these, other than before",
    "stress_planned": "calls for which the adversarial emulator planned a stress test",
    "stress_realised": "of the planned ones, observations that carry it",
}


def validity_counts(run: Run) -> dict[str, int]:
    """The counts of a run, by the names in ``VALIDITY_COUNTS``; absent is zero."""
    tools = {toolkit.callable_name(tool): (toolkit.name, tool) for toolkit in run.toolkits for tool in toolkit.tools}
    told = ["calls"] * len(run.steps)
    memory = _Memory(run)
    for step in run.steps:
        told.append(_answered(step))
        told += _stress(step.observation)
        if step.call.name in tools and step.observation.source != "rejected":
            toolkit, tool = tools[step.call.name]
            told += _conforming(step.observation, tool)
            told += memory.seen(step, toolkit, tool)
    told += _unanswered(run)
    found = Counter(told)
    return {name: found[name] for name in VALIDITY_COUNTS if found[name]}


def total_counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The counts of many runs together."""
    found: Counter[str] = Counter()
    for one in counts:
        found.update(one)
    return {name: found[name] for name in VALIDITY_COUNTS if found[name]}


def _answered(step: Step) -> str:
    source, emulation = step.observation.source, step.observation.emulation
    if source in ("rejected", "recorded", "offline"):
        return source
    if source in ("pinned", "remembered"):
        return "fixed"
    return "repaired" if emulation is not None and emulation.repairs else "first_try"


def _conforming(observation: Observation, tool: Tool) -> Iterator[str]:
    if observation.is_error:
        yield "errors"
    elif not conforms(tool.returns, observation.content):
        yield "violations"


def _stress(observation: Observation) -> Iterator[str]:
    test = observation.emulation.stress_test if observation.emulation is not None else None
    if test is not None and test.needed:
        yield "stress_planned"
        if test.realised:
            yield "stress_realised"


def _unanswered(run: Run) -> Iterator[str]:
    """The emulator's last exchange, where the run ended for want of its answer."""
    asked = [exchange for exchange in run.exchanges if exchange.role == "emulator"]
    if run.outcome != "inconclusive" or not asked or run.exchanges[-1].role != "emulator":
        return
    yield "never"
    reply = asked[-1].reply
    if (reply is not None and reply.stop == "refusal") or any("refused:" in reason for reason in run.reasons):
        yield "refused"


class _Memory:
    """What a run has shown so far: all text, reads and things by toolkit; a write forgets the toolkit's."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._steps: list[Step] = []
        self._text = ""
        self._reads: dict[str, dict[str, dict[str, Any]]] = {}
        self._things: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}

    def seen(self, step: Step, toolkit: str, tool: Tool) -> list[str]:
        """What one step adds to the counts."""
        found = list(self._ids(step, tool))
        if tool.effect == "read":
            found += self._read(step, toolkit)
        elif not step.observation.is_error:
            self._reads.pop(toolkit, None)
            self._things.pop(toolkit, None)
        if not step.observation.is_error:
            found += self._values(step.observation, toolkit, tool)
        self._steps.append(step)
        return found

    def _shown(self, text: str) -> bool:
        """Whether a text was told, called with, or returned before. The world's text is written out when asked for."""
        if not self._text:
            self._text = json_text([self._run.case.instruction, self._run.case.user.model_dump()])
        self._text += "".join(step.call.text + step.observation.text for step in self._steps)
        self._steps.clear()
        return text in self._text

    def _ids(self, step: Step, tool: Tool) -> Iterator[str]:
        if step.observation.is_error or not isinstance(step.call.arguments, dict):
            return
        for name, value in step.call.arguments.items():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, str | int) and not isinstance(one, bool) and _is_id(name, tool):
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
        known = self._things.setdefault(toolkit, {})
        for kind, members in _things(observation.content, tool):
            key = own_key(kind, members)
            if key is None:
                continue
            before = known.setdefault(key, {})
            for name, value in members.items():
                if isinstance(value, dict | list):
                    continue
                if name in before and str(value) != key[1]:
                    yield "values_repeated"
                    if before[name] != value:
                        yield "values_contradicting"
                before.setdefault(name, value)


def _is_id(name: str, tool: Tool) -> bool:
    return id_kind(name, tool) is not None and name.rpartition("_")[2] in ("id", "ids", "uuid")


def _things(content: dict[str, Any], tool: Tool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in a result, with the kind that it is shown as."""
    yield list_kind("result", tool), content
    for name, value in content.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield list_kind(name, tool), item


def validity_shares(counts: dict[str, int]) -> Sequence[tuple[str, int, int]]:
    """The measures as (name, count, out of): each a share of what it could have been."""
    emulated = sum(counts.get(name, 0) for name in ("first_try", "repaired", "never"))
    pairs = (
        ("valid at the first try", "first_try", emulated),
        ("valid after repair", "repaired", emulated),
        ("never valid", "never", emulated),
        ("refused", "refused", emulated),
        ("breaking the declared returns", "violations", counts.get("calls", 0) - counts.get("rejected", 0)),
        ("repeated reads answered differently", "reads_differing", counts.get("reads_repeated", 0)),
        ("accepted ids never issued", "ids_unissued", counts.get("ids_given", 0)),
        ("values contradicting earlier ones", "values_contradicting", counts.get("values_repeated", 0)),
        ("planned stress tests realised", "stress_realised", counts.get("stress_planned", 0)),
    )
    return [(label, counts.get(name, 0), out_of) for label, name, out_of in pairs if out_of]
