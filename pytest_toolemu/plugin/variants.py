"""Which items a case becomes: one for each agent, prompt and trial."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.case import SUFFIX, World, load_world
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.plugin.state import SESSION
from pytest_toolemu.settings import Settings

if TYPE_CHECKING:
    from pytest_toolemu.settings import Variant


def parametrize(metafunc: pytest.Metafunc, settings: Settings) -> None:
    """Multiply a test: by cases where its mark names them, by agents unless a fixture of the user's makes the agent."""
    mark = metafunc.definition.get_closest_marker("toolemu")
    cases = mark.kwargs.get("cases") if mark is not None else None
    if cases is not None:
        worlds = _cases(metafunc, str(cases))
        metafunc.parametrize("toolemu_case", worlds, indirect=True, ids=[world.case.id for world in worlds])
    if "toolemu_agent" in metafunc.fixturenames and is_own(metafunc.definition, "toolemu_agent"):
        chosen = metafunc.config.stash[SESSION].variants()
        if chosen:
            ids = labels(chosen)
            metafunc.parametrize("toolemu_variant", chosen, indirect=True, ids=ids)
    if "toolemu_trial" in metafunc.fixturenames and settings["trials"] > 1:
        trials = range(1, settings["trials"] + 1)
        metafunc.parametrize("toolemu_trial", trials, indirect=True, ids=[f"trial{n}" for n in trials])


def labels(chosen: tuple[Variant, ...]) -> list[str]:
    """``gpt-4o``, or ``gpt-4o-quit`` where an agent is run with several prompts. Base URLs are left out."""
    names = [variant.agent.partition("@")[0] for variant in chosen]
    agents = [variant.agent for variant in chosen]
    return [
        f"{name}-{variant.prompt}" if agents.count(variant.agent) > 1 else name
        for name, variant in zip(names, chosen, strict=True)
    ]


def is_own(item: Any, name: str) -> bool:
    """Whether the fixture an item gets under this name is the plugin's, not an override of the user's.

    Reads pytest's fixture closure, which has no public accessor; without it, False.
    """
    known: Any = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).get(name)
    return bool(known) and getattr(known[-1].func, "__module__", "") == "pytest_toolemu.plugin.fixtures"


def _cases(metafunc: pytest.Metafunc, cases: str) -> list[World]:
    """All cases below a path, which is relative to the rootdir, else to the test's own folder."""
    roots = (metafunc.config.rootpath / cases, Path(str(metafunc.module.__file__)).parent / cases)
    root = next((root for root in roots if root.exists()), None)
    paths = [root] if root and root.is_file() else sorted(root.rglob(f"*{SUFFIX}")) if root else []
    if not paths:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: no {SUFFIX} file at {cases!r}; looked in {roots[0]}")
    try:
        return [load_world(path) for path in paths]
    except DocumentError as error:
        raise pytest.UsageError(str(error)) from None
