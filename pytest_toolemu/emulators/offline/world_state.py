"""What a trajectory has established about the world behind one toolkit: things that exist, and things that are gone."""

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
"""A kind of thing and an id: ``("contact", "con-8f3k2q")``."""

_IDS: Final = frozenset({"id", "uuid", "number", "path"})
_NO_IDS: Final = frozenset({"phone", "mobile", "fax", "page", "house", "flight"})
# Lists of these names hold what the tool is named after.
_ANYTHING: Final = frozenset({"result", "item", "data", "match", "entry", "record", "value", "hit"})
# Members that report on a call and describe no thing.
REPORTS: Final = frozenset({"status", "state", "success", "message", "result", "ok"})
# These say that a call was carried out, unlike "cancelled" or "on", which say how the thing is now.
_DONE: Final = frozenset({"ok", "done", "success", "completed", "created", "updated", "saved", "changed", "added"})
_CREATES: Final = frozenset({"create", "add", "new", "post", "send", "save", "insert", "upload", "write", "schedule"})


class Subject(NamedTuple):
    """What a call is about: ``value`` identifies a thing of a kind, ``name`` is the singular of its argument."""

    kind: str
    value: Any
    name: str

    @property
    def key(self) -> Key:
        """Kind and id."""
        return self.kind, str(self.value)


@dataclass
class Thing:
    """One object of the world, with the members that calls have shown or set."""

    kind: str
    members: dict[str, Any]
    key: Key | None = None


@dataclass
class WorldState:
    """Things and settings, oldest first. ``lost`` keeps what was destroyed, so that nobody invents it anew."""

    things: list[Thing] = field(default_factory=list)
    lost: list[Thing] = field(default_factory=list)
    gone: set[Key] = field(default_factory=set)
    settings: dict[str, Any] = field(default_factory=dict)

    def find(self, key: Key | None) -> Thing | None:
        """The thing of that kind and id."""
        return next((thing for thing in self.things if key is not None and thing.key == key), None)

    def note(self, kind: str, members: dict[str, Any], key: Key | None) -> None:
        """Add a thing, or merge what is new about a known one."""
        if known := self.find(key):
            known.members.update(members)
        elif key or members not in [thing.members for thing in self.things]:
            self.things.append(Thing(key[0] if key else kind, dict(members), key))
            self.gone.discard(key or ("", ""))

    def drop(self, subject: Subject) -> None:
        """Destroy a thing, known or not."""
        self.gone.add(subject.key)
        for thing in list(self.things):
            named = thing.kind == subject.kind and id_kind(subject.name) is None
            if thing.key == subject.key or (named and thing.members.get(subject.name) == subject.value):
                self.things.remove(thing)
                self.lost.append(thing)


def world_state_of(steps: Iterable[Step], tools: dict[str, Tool]) -> WorldState:
    """The state after these steps, as far as calls of ``tools`` (by callable name) show it; failures change nothing."""
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
    asked = {name: value for name, value in arguments.items() if id_kind(name, tool) and _scalar(value)}
    whole = asked | {name: value for name, value in content.items() if not _holds_objects(value)}
    if key := own_key(noun(tool), whole):
        state.note(noun(tool), whole, key)
    _note_parts(state, tool, arguments, content)


def _note_parts(state: WorldState, tool: Tool, arguments: dict[str, Any], content: dict[str, Any]) -> None:
    """Note every object in a result."""
    for name, value in content.items():
        kind = list_kind(name, tool)
        items = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
        keys = [own_key(kind, item) for item in items]
        for item, key in zip(items, keys, strict=True):
            # The id of something else, such as the order that all these lines belong to, tells nothing apart.
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
        # What cannot be undone adds something, such as a message sent in reply; it changes nothing that was there.
        for subject in about if tool.effect == "write" else ():
            state.note(subject.kind, {**changes, subject.name: subject.value}, subject.key)
    elif words(tool.name)[0] in _CREATES:
        state.note(noun(tool), changes, None)
    else:
        state.settings |= changes


def subjects(tool: Tool, arguments: dict[str, Any]) -> list[Subject]:
    """The things whose ids a call gives; of ids of several kinds, those of what the tool is named after.

    A call that reads or destroys without an id is about the one value that it must give.
    """
    found = [
        Subject(kind, value, singular(name))
        for name, values in arguments.items()
        if (kind := id_kind(name, tool)) is not None
        for value in (values if isinstance(values, list) else [values])
        if _scalar(value)
    ]
    if found:
        named = [subject for subject in found if subject.kind in map(singular, words(tool.name))]
        return named or (found if len({subject.kind for subject in found}) == 1 else [])
    required = tool.parameters.get("required", ())
    if tool.effect in ("read", "destructive") and len(required) == 1 and _scalar(arguments.get(required[0])):
        return [Subject(noun(tool), arguments[required[0]], required[0])]
    return []


def _lasting(name: str, value: Any) -> bool:
    return name in ("status", "state") and isinstance(value, str) and value.casefold() not in _DONE


def noun(tool: Tool) -> str:
    """What a tool is named after: ``contact`` for SearchContacts."""
    return singular(words(tool.name)[-1])


def list_kind(name: str, tool: Tool) -> str:
    """The kind of the objects under a member of that name."""
    kind = singular((words(name) or ("",))[-1])
    return noun(tool) if kind in _ANYTHING else kind


def id_kind(name: str, tool: Tool | None = None, kind: str = "") -> str | None:
    """Of what kind of thing a member of that name is the id; None when it is none. A bare ``id`` is the tool's own."""
    owner = _owner(name)
    return (noun(tool) if tool else kind) if owner == "" else owner


# As with words: a report asks this of every member of every object.
@functools.lru_cache(maxsize=4096)
def _owner(name: str) -> str | None:
    """Whose id a member of that name is: empty where it does not say, None where it is none."""
    parts = words(name)
    if not parts or singular(parts[-1]) not in _IDS or _NO_IDS & set(parts):
        return None
    return parts[-2] if len(parts) > 1 else ""


def own_key(kind: str, members: dict[str, Any]) -> Key | None:
    """Kind and id of an object: by the id of the kind that it is shown as, else by the first that it has."""
    ids = [
        (owner or kind, str(value))
        for name, value in members.items()
        if (owner := _owner(name)) is not None and (owner or kind) and _scalar(value)
    ]
    return next((key for key in ids if key[0] == kind), ids[0] if ids else None)


def matches(members: dict[str, Any], arguments: dict[str, Any]) -> bool:
    """Whether a search with these arguments finds an object: it has what they name, and the words they ask for."""
    return all(_agrees(members, name, value) for name, value in arguments.items())


def _agrees(members: dict[str, Any], name: str, wanted: Any) -> bool:
    if wanted in ("all", "any"):
        return True
    if name in QUERIES:
        return _vocabulary(wanted) <= _vocabulary(members)
    for known in (name, f"{name}s", singular(name)):
        if known in members and _scalar(wanted):
            return _vocabulary(wanted) <= _vocabulary(members[known])
        if known in members and isinstance(wanted, list):
            return any(_vocabulary(one) <= _vocabulary(members[known]) for one in wanted)
    return True


def _vocabulary(value: Any) -> set[str]:
    """The words of all texts and numbers in a value."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return {word for part in parts for word in _vocabulary(part)}
    return set(re.findall(r"\w+", str(value).casefold()))


def _scalar(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)
