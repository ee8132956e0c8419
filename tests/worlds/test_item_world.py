"""The case of an item gets its built world once, whichever thread asks first."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_toolemu.plugin.collection import case_worlds
from pytest_toolemu.plugin.execution.item_world import case_in_world
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.plugin.session import PLANNED_WORLD, RESOLVED_CASE


def test_a_case_that_is_prepared_before_its_turn_and_in_its_turn_gets_its_world_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = cast(Any, SimpleNamespace(stash=pytest.Stash()))
    item.stash[PLANNED_WORLD] = SimpleNamespace(path=tmp_path / "world.json")
    (tmp_path / "world.json").touch()
    services = cast(Services, SimpleNamespace(session=SimpleNamespace(settings=SimpleNamespace(estimate=False))))
    seen: list[Any] = []
    other = threading.Thread(target=lambda: seen.append(case_in_world(item, services)))
    built: list[str] = []

    def set_world(item: Any, planned: Any) -> None:
        del planned
        built.append("built")
        item.stash[RESOLVED_CASE] = "the case in its world"
        if not other.ident:
            other.start()
            other.join(0.05)  # it can end only if nothing keeps it out

    monkeypatch.setattr(case_worlds, "set_world", set_world)
    seen.append(case_in_world(item, services))
    other.join()
    assert (seen, built) == (["the case in its world"] * 2, ["built"])
