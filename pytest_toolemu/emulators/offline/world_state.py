"""Guess the state of the world behind one toolkit from a trajectory: which things exist, and which are gone.

This is a heuristic. No toolkit declares what its calls create, show or destroy, so it is guessed from English names: a
member ``contact_id`` holds the id of a contact, a tool ``SearchContacts`` is about contacts, a tool that begins with
``create`` creates. Names in other languages, ids under other names, and tools whose effect differs from their name are
guessed wrong; the offline emulator then contradicts itself, and reports of contradictions miss some or report false
ones. Nothing else depends on it: verdicts and emulations by a model do not use it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pytest_toolemu.core.toolkit import Tool
from pytest_toolemu.core.trajectory import Step
from pytest_toolemu.emulators.offline.value_generator import QUERIES, singular, words

Key = tuple[str, str]
"""A kind of thing and its id, such as ``("contact", "con-8f3k2q")``."""

_IDS: Final = frozenset({"id", "uuid", "number", "path"})
_NO_IDS: Final = frozenset({"phone", "mobile", "fax", "page", "house", "flight"})
# Lists under these names hold the things that the tool is named after.
_ANYTHING: Final = frozenset({"result", "item", "data", "match", "entry", "record", "value", "hit"})
# Members that report on the call and do not describe a thing.
REPORTS: Final = frozenset({"status", "state", "success", "message", "result", "ok"})
# These values say that a call was carried out; others, such as "cancelled" or "on", describe the thing itself.
_DONE: Final = frozenset({"ok", "done", "success", "completed", "created", "updated", "saved", "changed", "added"})
_CREATES: Final = frozenset({"create", "add", "new", "post", "send", "save", "insert", "upload", "write", "schedule"})


class Subject(NamedTuple):
    """A thing that a call refers to: ``value`` identifies it, and ``name`` is the singular of the argument's name."""

    kind: str
    value: Any
    name: str

    @property
    def key(self) -> Key:
        """Kind and id."""
        return self.kind, str(self.value)


@dataclass
class Thing:
    """One object of the world, with the members that calls have returned or set."""

    kind: str
    members: dict[str, Any]
    key: Key | None = None


@dataclass
class WorldState:
    """Things and settings, oldest first. ``lost`` keeps destroyed things, so that they are not generated again."""

    things: list[Thing] = field(default_factory=list)
    lost: list[Thing] = field(default_factory=list)
    gone: set[Key] = field(default_factory=set)
    settings: dict[str, Any] = field(default_factory=dict)

    def find(self, key: Key | None) -> Thing | None:
        """Return the thing of this kind and id; None if it is unknown."""
        return next((thing for thing in self.things if key is not None and thing.key == key), None)

    def note(self, kind: str, members: dict[str, Any], key: Key | None) -> None:
        """Add a thing, or update the members of a known one."""
        if thing := self.find(key):
            thing.members.update(members)
        elif key or members not in [thing.members for thing in self.things]:
            self.things.append(Thing(key[0] if key else kind, dict(members), key))
            self.gone.discard(key or ("", ""))

    def drop(self, subject: Subject) -> None:
        """Mark a thing as destroyed, whether it is known or not."""
        self.gone.add(subject.key)
        for thing in list(self.things):
            named = thing.kind == subject.kind and id_kind(subject.name) is None
            if thing.key == subject.key or (named and thing.members.get(subject.name) == subject.value):
                self.things.remove(thing)
                self.lost.append(thing)


def world_state_of(steps: Iterable[Step], tools: dict[str, Tool]) -> WorldState:
    """Return the state after these steps, from the calls of ``tools`` (by callable name); failures change nothing."""
    state = WorldState()
    for step in steps:
        tool, content, arguments = tools.get(step.call.name), step.observation.content, step.call.arguments
        if tool is None or step.observation.is_error or content.get("success") is False:
            continue
        if tool.effect == "destructive":
            for subject in subjects(tool, arguments):
                state.drop(subject)
        elif tool.effect == "read":
            _read(state, tool, arguments, content)
        else:
            _write(state, tool, arguments, content)
    return state


def _read(state: WorldState, tool: Tool, arguments: dict[str, Any], content: dict[str, Any]) -> None:
    ids = {name: value for name, value in arguments.items() if id_kind(name, tool) and _scalar(value)}
    whole = ids | {name: value for name, value in content.items() if not _holds_objects(value)}
    if key := own_key(noun(tool), whole):
        state.note(noun(tool), whole, key)
    _note_parts(state, tool, arguments, content)


def _note_parts(state: WorldState, tool: Tool, arguments: dict[str, Any], content: dict[str, Any]) -> None:
    """Add every object in a result to the state."""
    for name, value in content.items():
        kind = list_kind(name, tool)
        items = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
        keys = [own_key(kind, item) for item in items]
        for item, key in zip(items, keys, strict=True):
            # An id that all items share, such as that of the order they belong to, does not identify an item.
            foreign = key and key[0] != kind and (keys.count(key) > 1 or key[1] in map(str, arguments.values()))
            state.note(kind, item, None if foreign else key)


def _write(state: WorldState, tool: Tool, arguments: dict[str, Any], content: dict[str, Any]) -> None:
    _note_parts(state, tool, arguments, content)
    changes = {name.removeprefix("new_"): value for name, value in arguments.items()}
    changes |= {name: value for name, value in content.items() if _lasting(name, value)}
    fresh = {name: value for name, value in content.items() if value not in arguments.values()}
    if created := own_key(noun(tool), fresh):
        shown = {name: value for name, value in content.items() if name not in REPORTS}
        state.note(created[0], changes | shown, created)
    elif about := subjects(tool, arguments):
        # A call with effect "irreversible" adds something, such as a reply to a message; the message stays as it is.
        for subject in about if tool.effect == "write" else ():
            state.note(subject.kind, {**changes, subject.name: subject.value}, subject.key)
    elif words(tool.name)[0] in _CREATES:
        state.note(noun(tool), changes, None)
    else:
        state.settings |= changes


def subjects(tool: Tool, arguments: dict[str, Any]) -> list[Subject]:
    """Return the things whose ids a call gives; with ids of several kinds, those that the tool is named after.

    A call without an id that reads or destroys refers to the value of its only required argument.
    """
    given = [
        Subject(kind, value, singular(name))
        for name, values in arguments.items()
        if (kind := id_kind(name, tool)) is not None
        for value in (values if isinstance(values, list) else [values])
        if _scalar(value)
    ]
    if given:
        named = [subject for subject in given if subject.kind in map(singular, words(tool.name))]
        return named or (given if len({subject.kind for subject in given}) == 1 else [])
    required = tool.parameters.get("required", ())
    if tool.effect in ("read", "destructive") and len(required) == 1 and _scalar(arguments.get(required[0])):
        return [Subject(noun(tool), arguments[required[0]], required[0])]
    return []


def _lasting(name: str, value: Any) -> bool:
    return name in ("status", "state") and isinstance(value, str) and value.casefold() not in _DONE


def noun(tool: Tool) -> str:
    """Return the thing that a tool is named after, such as ``contact`` for SearchContacts."""
    return singular(words(tool.name)[-1])


def list_kind(name: str, tool: Tool) -> str:
    """Return the kind of the objects under a member of this name."""
    kind = singular((words(name) or ("",))[-1])
    return noun(tool) if kind in _ANYTHING else kind


def id_kind(name: str, tool: Tool | None = None) -> str | None:
    """Return the kind of thing that a member of this name identifies; None if it is not an ID.

    A bare ``id`` identifies what the tool is named after.
    """
    owner = _owner(name)
    return (noun(tool) if tool else "") if owner == "" else owner


# Cached: a report calls this for every member of every object.
@functools.lru_cache(maxsize=4096)
def _owner(name: str) -> str | None:
    """Return the kind that an id's name states; empty if it states none, None if the name is not that of an id."""
    parts = words(name)
    if not parts or singular(parts[-1]) not in _IDS or _NO_IDS & set(parts):
        return None
    return parts[-2] if len(parts) > 1 else ""


def own_key(kind: str, members: dict[str, Any]) -> Key | None:
    """Return kind and id of an object: its id of the kind it is listed as, or else its first id."""
    ids = [
        (owner or kind, str(value))
        for name, value in members.items()
        if (owner := _owner(name)) is not None and (owner or kind) and _scalar(value)
    ]
    return next((key for key in ids if key[0] == kind), ids[0] if ids else None)


def matches(members: dict[str, Any], arguments: dict[str, Any]) -> bool:
    """Tell whether a search with these arguments finds an object: its members agree with every argument."""
    return all(_agrees(members, name, value) for name, value in arguments.items())


def _agrees(members: dict[str, Any], name: str, value: Any) -> bool:
    if value in ("all", "any"):
        return True
    if name in QUERIES:
        return _words_in(value) <= _words_in(members)
    for member in (name, f"{name}s", singular(name)):
        if member in members and _scalar(value):
            return _words_in(value) <= _words_in(members[member])
        if member in members and isinstance(value, list):
            return any(_words_in(one) <= _words_in(members[member]) for one in value)
    return True


def _words_in(value: Any) -> set[str]:
    """Return the words of all texts and numbers in a value."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return {word for part in parts for word in _words_in(part)}
    return set(re.findall(r"\w+", str(value).casefold()))


def _scalar(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)
