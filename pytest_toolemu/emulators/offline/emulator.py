"""A world without a model: what the trajectory established stays true, and everything else is invented from a seed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from pytest_toolemu.core.run import sha256
from pytest_toolemu.core.toolkit import Tool, Toolkit
from pytest_toolemu.core.trajectory import Call, Observation, Trajectory, failure
from pytest_toolemu.emulators.offline.schema_generator import SchemaGenerator, UnsatisfiableSchemaError
from pytest_toolemu.emulators.offline.value_generator import Path, singular
from pytest_toolemu.emulators.offline.world_state import (
    REPORTS,
    Thing,
    WorldState,
    id_kind,
    list_kind,
    matches,
    own_key,
    subjects,
    world_state_of,
)
from pytest_toolemu.errors import InconclusiveError
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.json_schema_refs import inlined

_NOT_FOUND: Final = re.compile(r"(?i)not_?found|missing|unknown|no_?such|does_?not_?exist|gone|unavailable")
_LIMIT: Final = re.compile(r"(?i)limit|^(max|num)_?(results|items|entries)$|^page_?size$|^top(_?k)?$")
_COUNTS: Final = ("count", "deleted", "updated", "merged", "changed", "moved", "removed", "added")
_TOTALS: Final = frozenset({"count", "total", "total_count", "total_results", "found"})
_TRIES: Final = 5


@dataclass(frozen=True)
class OfflineEmulator:
    """Answers from the state, then by invention. The same call in the same state always gets the same answer.

    It expects calls that Checked let through. InconclusiveError when nothing is found that a tool's returns allow.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """There is only one offline world."""
        return {"kind": "offline"}

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """What the tool returns, or its error for what is gone."""
        toolkit, tool = _tool(call, trajectory)
        state = world_state_of(trajectory.steps, {toolkit.callable_name(each): each for each in toolkit.tools})
        lost = next((subject for subject in subjects(tool, call.arguments) if subject.key in state.gone), None)
        error = next((name for name in tool.errors if _NOT_FOUND.search(name)), None)
        if lost and error:
            return failure(f"{error}: there is no {lost.kind} with {lost.name} {lost.value!r}", "offline")
        answer = OfflineAnswer(call, tool, state, trajectory)
        for attempt in range(_TRIES):
            invented = answer.invented(f"{attempt}")
            for content in (answer.established(invented), invented):
                if content is not None and not violations(tool.returns, content):
                    return Observation(content=content, source="offline")
        raise InconclusiveError(
            f"the offline emulator found nothing that {call.tool} may return; pin an answer, simplify its 'returns', "
            "or use a model as emulator"
        )


class OfflineAnswer:
    """One answer in the making."""

    def __init__(self, call: Call, tool: Tool, state: WorldState, trajectory: Trajectory) -> None:
        self._tool, self._state, self._case = tool, state, trajectory.resolved_case.case
        self._arguments: dict[str, Any] = call.arguments
        self._returns = inlined(tool.returns)
        # A write that is done again does something else again: its number is part of the state.
        again = sum(step.call.tool == call.tool and step.call.text == call.text for step in trajectory.steps)
        again = 0 if tool.effect == "read" else again
        self._seed_of_case = sha256([trajectory.seed, self._case.id])
        self._seed = sha256([self._seed_of_case, call.tool, call.text, again])
        limits = [value for name, value in self._arguments.items() if _LIMIT.search(name) and type(value) is int]
        self._limit = max(1, min(limits, default=1_000_000))

    def invented(self, salt: str) -> dict[str, Any] | None:
        """An answer that knows nothing but the call; None when there is none."""
        echo = dict(self._arguments)
        lists = [value for value in echo.values() if isinstance(value, list)]
        if self._tool.effect != "read" and len(lists) == 1:
            echo = dict.fromkeys(_COUNTS, len(lists[0])) | echo
        made: dict[str, Any] | None = self._made(self._seed + salt, echo, self._returns, (self._tool.name,))
        return made

    def _made(self, seed: str, echo: dict[str, Any], schema: Any, path: Path) -> Any:
        generator = SchemaGenerator(seed, self._case.locale, self._case.now, echo, min(self._limit, 3))
        try:
            return generator.value(schema, path)
        except (
            UnsatisfiableSchemaError,
            ArithmeticError,
            RecursionError,
        ):  # bounds and patterns may be beyond all reason
            return None

    def established(self, content: dict[str, Any] | None) -> dict[str, Any] | None:
        """The same answer with all that the trajectory has established."""
        if content is None:
            return None
        about = [thing for s in subjects(self._tool, self._arguments) if (thing := self._state.find(s.key))]
        settings = self._state.settings if self._tool.effect == "read" else {}
        known = about[0].members if len(about) == 1 else {} if about else settings
        content = self._with(self._returns, content, known)
        for name, part in self._returns.get("properties", {}).items():
            value = content.get(name)
            if isinstance(value, dict) and isinstance(part, dict):
                kind = list_kind(name, self._tool)
                thing = self._state.find(own_key(kind, value))
                content[name] = self._with(part, value, thing.members if thing else known)
            elif isinstance(value, list) and isinstance(part, dict) and self._tool.effect == "read":
                content[name] = self._items(name, part.get("items"), value)
        return content | self._totals(content)

    def _totals(self, content: dict[str, Any]) -> dict[str, int]:
        """How many items there are, where a result says so beside its only list."""
        lists = [value for value in content.values() if isinstance(value, list)]
        named = [name for name in content if name in _TOTALS and type(content[name]) is int]
        return dict.fromkeys(named, len(lists[0])) if len(lists) == 1 else {}

    def _with(self, schema: dict[str, Any], value: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        """An object with its known members, as far as the schema has them; a change knows better what it changes."""
        parts = schema.get("properties") or dict.fromkeys(known, True)
        fixed = () if self._tool.effect == "read" else {*self._arguments, *REPORTS}
        taken = {
            name: known[name]
            for name, part in parts.items()
            if name in known and name not in fixed and not _holds_objects(known[name]) and _allows(part, known[name])
        }
        return {**value, **taken}

    def _items(self, name: str, schema: Any, invented: list[Any]) -> list[Any]:
        """The known things that the call asks for; none where they are gone; else what was invented."""
        schema = schema if isinstance(schema, dict) else {}
        kind = self._kind(name, schema)
        if kind is None:
            return invented
        found = [
            thing for thing in self._state.things if thing.kind == kind and matches(thing.members, self._arguments)
        ]
        if found:
            return [self._shown(name, schema, thing) for thing in found[: self._limit]]
        if any(thing.kind == kind and matches(thing.members, self._arguments) for thing in self._state.lost):
            return []
        shown = []
        for item in invented:
            key = own_key(kind, item) if isinstance(item, dict) else (kind, str(item))
            if key not in self._state.gone:
                thing = self._state.find(key)
                shown.append(self._shown(name, schema, thing) if thing else item)
        return shown

    def _kind(self, name: str, schema: dict[str, Any]) -> str | None:
        """The kind of things that a list holds: objects, or their ids."""
        if id_kind(name, self._tool) or schema.get("type", "object") != "object":
            return id_kind(name, self._tool)
        kind = list_kind(name, self._tool)
        key = own_key(kind, dict.fromkeys(schema.get("properties", {}), ""))
        return key[0] if key else kind

    def _shown(self, name: str, schema: dict[str, Any], thing: Thing) -> Any:
        """A known thing as an item of a list; what is not known of it is invented, always in the same way."""
        if id_kind(name, self._tool) and "properties" not in schema:
            return thing.members.get(singular(name), thing.key and thing.key[1])
        if "properties" not in schema:
            return thing.members
        seed = sha256([self._seed_of_case, thing.kind, thing.key or thing.members])
        made = self._made(seed, {}, schema, (self._tool.name, name, singular(name)))
        return thing.members if made is None else self._with(schema, made, thing.members)


def _tool(call: Call, trajectory: Trajectory) -> tuple[Toolkit, Tool]:
    found = ((kit, tool) for kit in trajectory.resolved_case.toolkits for tool in kit.tools)
    return next((kit, tool) for kit, tool in found if kit.callable_name(tool) == call.name)


def _allows(schema: Any, value: Any) -> bool:
    return schema is not False and not (isinstance(schema, dict) and violations(schema, value))


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)
