"""Which items a case becomes: one for each agent, prompt and trial."""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_toolemu.core.case import SUFFIX, SUFFIXES, ResolvedCase
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.plugin.collection.unique_ids import conflict
from pytest_toolemu.plugin.session import SESSION
from pytest_toolemu.settings import Settings

if TYPE_CHECKING:
    from pytest_toolemu.settings import AgentConfig


def parametrize(metafunc: pytest.Metafunc, settings: Settings) -> None:
    """Multiply a test: by cases where its mark names them, by agents unless a fixture of the user's makes the agent."""
    mark = metafunc.definition.get_closest_marker("toolemu")
    if mark is not None and (mark.args or set(mark.kwargs) != {"cases"}):
        pytest.fail("@pytest.mark.toolemu takes one argument by name: cases='PATH'", pytrace=False)
    cases = mark.kwargs["cases"] if mark is not None else None
    if cases is not None:
        resolved_cases = _cases(metafunc, str(cases))
        metafunc.parametrize(
            "toolemu_case",
            resolved_cases,
            indirect=True,
            ids=[resolved_case.case.id for resolved_case in resolved_cases],
        )
    if "toolemu_agent" in metafunc.fixturenames and is_own(metafunc.definition, "toolemu_agent"):
        chosen = metafunc.config.stash[SESSION].variants()
        if chosen:
            ids = list(labels(chosen).values())
            metafunc.parametrize("toolemu_variant", chosen, indirect=True, ids=ids)
    if "toolemu_trial" in metafunc.fixturenames and settings.trials > 1:
        trials = range(1, settings.trials + 1)
        metafunc.parametrize("toolemu_trial", trials, indirect=True, ids=[f"trial{n}" for n in trials])


def labels(chosen: tuple[AgentConfig, ...]) -> dict[AgentConfig, str]:
    """What each variant is called in ids and tables: ``gpt-4o``, or ``gpt-4o-quit`` where an agent has several prompts.

    A base URL is left out unless two agents differ by nothing else.
    """
    prompts = Counter(variant.agent for variant in chosen)
    return {
        variant: f"{name}-{variant.prompt}" if prompts[variant.agent] > 1 else name
        for variant, name in names(chosen).items()
    }


def names(chosen: tuple[AgentConfig, ...]) -> dict[AgentConfig, str]:
    """What each variant's agent is called, whatever its prompt."""
    bare = Counter(agent.partition("@")[0] for agent in {variant.agent for variant in chosen})
    shortened = {variant: variant.agent.partition("@")[0] for variant in chosen}
    return {variant: name if bare[name] == 1 else variant.agent for variant, name in shortened.items()}


def label_of(item: Any) -> str | None:
    """What the item's configured agent is called; None where a fixture of the user's makes the agent."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    variant = params.get("toolemu_variant")
    return labels(item.config.stash[SESSION].variants())[variant] if variant and is_own(item, "toolemu_agent") else None


def is_own(item: Any, name: str) -> bool:
    """Whether the fixture an item gets under this name is the plugin's, not an override of the user's.

    Reads pytest's fixture closure, which has no public accessor; without it, False.
    """
    known: Any = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).get(name)
    return bool(known) and getattr(known[-1].func, "__module__", "") == "pytest_toolemu.plugin.fixtures"


def is_foreign(item: Any, name: str) -> bool:
    """Whether no code of the project makes this fixture: it is the plugin's, pytest's, or an installed package's."""
    known: Any = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", None)
    if known is None:
        return False
    if name == "request" or name not in known or is_own(item, name):
        return name == "request" or name in known
    path = Path(inspect.getsourcefile(inspect.unwrap(known[name][-1].func)) or ".").resolve()
    return "site-packages" in path.parts or not path.is_relative_to(item.config.rootpath)


def _cases(metafunc: pytest.Metafunc, cases: str) -> list[ResolvedCase]:
    """All cases below a path, which is relative to the rootdir, else to the test's own folder."""
    roots = (metafunc.config.rootpath / cases, Path(str(metafunc.module.__file__)).parent / cases)
    root = next((root for root in roots if root.exists()), None)
    paths = (
        [root]
        if root and root.is_file()
        else sorted(p for p in root.rglob("*") if p.name.endswith(SUFFIXES))
        if root
        else []
    )
    if not paths:
        pytest.fail(f"{metafunc.definition.nodeid}: no {SUFFIX} file at {cases!r}; looked in {roots[0]}", pytrace=False)
    try:
        resolved_cases = [load_case(path) for path in paths]
    except DocumentError as error:
        pytest.fail(str(error), pytrace=False)
    for resolved_case in resolved_cases:
        if problem := conflict(metafunc.config, resolved_case.case.id, resolved_case.path):
            pytest.fail(plain(problem), pytrace=False)
    return resolved_cases
