"""Emulate tools without a model: earlier results stay true, and everything else is generated from a seed."""

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
    """Answers from the world state and generates the rest. The same call in the same state gets the same answer.

    It expects calls that ValidatedEmulator has accepted. InconclusiveError if no result is found that conforms to the
    tool's return schema.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """Kind; nothing of the offline emulator can be configured."""
        return {"kind": "offline"}

    async def __call__(self, call: Call, trajectory: Trajectory) -> Observation:
        """Return the tool's result, or its error if the object of the call no longer exists."""
        toolkit, tool = _tool(call, trajectory)
        state = world_state_of(trajectory.steps, {toolkit.callable_name(each): each for each in toolkit.tools})
        gone = next((subject for subject in subjects(tool, call.arguments) if subject.key in state.gone), None)
        error = next((name for name in tool.errors if _NOT_FOUND.search(name)), None)
        if gone and error:
            return failure(f"{error}: there is no {gone.kind} with {gone.name} {gone.value!r}", "offline")
        answer = OfflineAnswer(call, tool, state, trajectory)
        for attempt in range(_TRIES):
            generated = answer.generated(f"{attempt}")
            for content in (answer.with_state(generated), generated):
                if content is not None and not violations(tool.returns, content):
                    return Observation(content=content, source="offline")
        raise InconclusiveError(
            f"the offline emulator found no result that {call.tool} may return; pin one, simplify its 'returns', or "
            "use a model as emulator"
        )


class OfflineAnswer:
    """The answer to one call while it is being put together."""

    def __init__(self, call: Call, tool: Tool, state: WorldState, trajectory: Trajectory) -> None:
        self._tool, self._state, self._case = tool, state, trajectory.resolved_case.case
        self._arguments: dict[str, Any] = call.arguments
        self._returns = inlined(tool.returns)
        # A repeated write has a new effect each time, so the number of repetitions is part of the seed.
        repetitions = sum(step.call.tool == call.tool and step.call.text == call.text for step in trajectory.steps)
        repetitions = 0 if tool.effect == "read" else repetitions
        self._seed_of_case = sha256([trajectory.seed, self._case.id])
        self._seed = sha256([self._seed_of_case, call.tool, call.text, repetitions])
        limits = [value for name, value in self._arguments.items() if _LIMIT.search(name) and type(value) is int]
        self._limit = max(1, min(limits, default=1_000_000))

    def generated(self, salt: str) -> dict[str, Any] | None:
        """Generate a result from the call alone; None if none is found."""
        echo = dict(self._arguments)
        lists = [value for value in echo.values() if isinstance(value, list)]
        if self._tool.effect != "read" and len(lists) == 1:
            echo = dict.fromkeys(_COUNTS, len(lists[0])) | echo
        result: dict[str, Any] | None = self._generate(self._seed + salt, echo, self._returns, (self._tool.name,))
        return result

    def _generate(self, seed: str, echo: dict[str, Any], schema: Any, path: Path) -> Any:
        generator = SchemaGenerator(seed, self._case.locale, self._case.now, echo, min(self._limit, 3))
        try:
            return generator.value(schema, path)
        except (
            UnsatisfiableSchemaError,
            ArithmeticError,
            RecursionError,
        ):  # bounds and patterns may be absurd
            return None

    def with_state(self, content: dict[str, Any] | None) -> dict[str, Any] | None:
        """Replace generated values by those that the world state knows."""
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
        """Set members that count the items of the result's only list."""
        lists = [value for value in content.values() if isinstance(value, list)]
        named = [name for name in content if name in _TOTALS and type(content[name]) is int]
        return dict.fromkeys(named, len(lists[0])) if len(lists) == 1 else {}

    def _with(self, schema: dict[str, Any], value: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        """Replace members of an object by their known values, except those that the call itself changes."""
        parts = schema.get("properties") or dict.fromkeys(known, True)
        fixed = () if self._tool.effect == "read" else {*self._arguments, *REPORTS}
        taken = {
            name: known[name]
            for name, part in parts.items()
            if name in known and name not in fixed and not _holds_objects(known[name]) and _allows(part, known[name])
        }
        return {**value, **taken}

    def _items(self, name: str, schema: Any, generated: list[Any]) -> list[Any]:
        """Return the known things that match the call; no items if those are gone; otherwise the generated items."""
        schema = schema if isinstance(schema, dict) else {}
        kind = self._kind(name, schema)
        if kind is None:
            return generated
        matching = [
            thing for thing in self._state.things if thing.kind == kind and matches(thing.members, self._arguments)
        ]
        if matching:
            return [self._shown(name, schema, thing) for thing in matching[: self._limit]]
        if any(thing.kind == kind and matches(thing.members, self._arguments) for thing in self._state.lost):
            return []
        shown = []
        for item in generated:
            key = own_key(kind, item) if isinstance(item, dict) else (kind, str(item))
            if key not in self._state.gone:
                thing = self._state.find(key)
                shown.append(self._shown(name, schema, thing) if thing else item)
        return shown

    def _kind(self, name: str, schema: dict[str, Any]) -> str | None:
        """Return the kind of the things in a list, which holds objects or their ids."""
        if id_kind(name, self._tool) or schema.get("type", "object") != "object":
            return id_kind(name, self._tool)
        kind = list_kind(name, self._tool)
        key = own_key(kind, dict.fromkeys(schema.get("properties", {}), ""))
        return key[0] if key else kind

    def _shown(self, name: str, schema: dict[str, Any], thing: Thing) -> Any:
        """Return a known thing as an item of a list; its unknown members are generated, always the same ones."""
        if id_kind(name, self._tool) and "properties" not in schema:
            return thing.members.get(singular(name), thing.key and thing.key[1])
        if "properties" not in schema:
            return thing.members
        seed = sha256([self._seed_of_case, thing.kind, thing.key or thing.members])
        item = self._generate(seed, {}, schema, (self._tool.name, name, singular(name)))
        return thing.members if item is None else self._with(schema, item, thing.members)


def _tool(call: Call, trajectory: Trajectory) -> tuple[Toolkit, Tool]:
    tools = ((kit, tool) for kit in trajectory.resolved_case.toolkits for tool in kit.tools)
    return next((kit, tool) for kit, tool in tools if kit.callable_name(tool) == call.name)


def _allows(schema: Any, value: Any) -> bool:
    return schema is not False and not (isinstance(schema, dict) and violations(schema, value))


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)
