"""A toolkit with declared data, as text, and worlds of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_toolemu.core.case import User
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.world.toolkit_plan import ToolkitPlan, planned
from pytest_toolemu.core.world.world import World
from pytest_toolemu.core.world.world_state import WorldBeginning
from pytest_toolemu.formats.yaml_document import Document

LIBRARY = (Path(__file__).parent / "Library.toolkit.yaml").read_text(encoding="utf-8")

ATLAS = {
    "book_id": "B-1",
    "isbn": "111",
    "title": "Atlas of Águilas",
    "language": "es",
    "tags": ["maps"],
    "lendable": False,
    "copies": 1,
}
NOVEL = {
    "book_id": "B-2",
    "isbn": "222",
    "title": "The Last Tram",
    "language": "en",
    "tags": ["novel", "night"],
    "lendable": True,
    "copies": 1,
}
POEMS = {
    "book_id": "B-3",
    "isbn": "333",
    "title": "Night Poems",
    "language": "en",
    "tags": [],
    "lendable": True,
    "copies": 0,
}
ROWS: Mapping[str, Mapping[str, Sequence[dict[str, Any]]]] = {"Library": {"book": [ATLAS, NOVEL, POEMS]}}


def toolkit_of(text: str = LIBRARY) -> Toolkit:
    """Return the toolkit in a text."""
    return Document.parse(text, Path("Library.toolkit.yaml")).build(Toolkit)


@functools.cache
def plan_of_text(text: str) -> ToolkitPlan:
    """Return the plan of the toolkit in a text, whose declarations must be valid."""
    uncached: Callable[[Toolkit], tuple[ToolkitPlan, list[Any]]] = inspect.unwrap(planned)
    plan, problems = uncached(toolkit_of(text))
    assert problems == []
    return plan


def world_of(
    text: str = LIBRARY,
    rows: Mapping[str, Mapping[str, Sequence[dict[str, Any]]]] = ROWS,
    ids: Mapping[str, Sequence[Any]] | None = None,
) -> World:
    """Return a world of the toolkit in a text, whose declarations must be valid."""
    plan = plan_of_text(text)
    now = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
    user = User(name="Ada Lovelace", email="ada@example.org")
    return World(WorldBeginning({"Library": plan}, rows), ids=ids or {}, user=user, now=now, seed="a-case")
