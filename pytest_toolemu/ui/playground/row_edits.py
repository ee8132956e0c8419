"""Changes of rows, as edits that repeat them or take them back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final, Literal

from pytest_toolemu.core.world.state_changes import StateChange, StateEdit
from pytest_toolemu.core.world.world import World
from pytest_toolemu.errors import WorldError

_EDITS: Final[Mapping[str, Literal["add", "change", "remove"]]] = {
    "added": "add", "changed": "change", "removed": "remove",
}  # fmt: skip
_OPPOSITES: Final[Mapping[str, Literal["add", "change", "remove"]]] = {
    "added": "remove", "changed": "change", "removed": "add",
}  # fmt: skip


def take_back(world: World | None) -> None:
    """Undo what the call that is being answered has changed."""
    if world is not None and (changes := world.take_changes()):
        _edit(world, [_opposite(change) for change in reversed(changes)])
        world.take_changes()


def repeat(world: World | None, changes: Iterable[StateChange]) -> None:
    """Change the rows as a call of an earlier run did. Raise WorldError if they do not fit."""
    if world is not None:
        _edit(world, [_again(change) for change in changes])


def _edit(world: World, edits: Iterable[tuple[str, StateEdit]]) -> None:
    for kit, of_kit in groupby(edits, lambda edit: edit[0]):
        if problems := world.edit(kit, [edit for _, edit in of_kit]):
            raise WorldError(f"the rows of {kit} cannot be changed as in the other play: {'; '.join(problems)}")


def _again(change: StateChange) -> tuple[str, StateEdit]:
    return _edit_of(change, _EDITS[change.change], change.after)


def _opposite(change: StateChange) -> tuple[str, StateEdit]:
    return _edit_of(change, _OPPOSITES[change.change], change.before)


def _edit_of(
    change: StateChange, kind: Literal["add", "change", "remove"], values: Mapping[str, object]
) -> tuple[str, StateEdit]:
    kit, _, entity = change.entity.partition(".")
    cleared = dict(_cleared(change, values)) if kind == "change" else {}
    return kit, StateEdit(change=kind, entity=entity, key=str(change.key), values={**cleared, **values})


def _cleared(change: StateChange, values: Mapping[str, object]) -> Iterator[tuple[str, None]]:
    """Yield the fields that get no value, which an edit sets to null."""
    for name in {**change.before, **change.after}:
        if name not in values:
            yield name, None
