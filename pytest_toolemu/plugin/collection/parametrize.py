"""Turns one test into the items that the settings ask for: one for each agent, prompt, and trial, and for each case."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.core.case import SUFFIX, ResolvedCase
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.dataset import case_files
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.plugin.collection.agent_configs import agent_configs, labels
from pytest_toolemu.plugin.collection.fixture_definitions import is_plugin_fixture
from pytest_toolemu.plugin.collection.unique_ids import conflict
from pytest_toolemu.settings import Settings


def parametrize(metafunc: pytest.Metafunc, settings: Settings) -> None:
    """Multiply a test by the cases that its mark names, by the configured agents, and by trials.

    It is not multiplied by agents if a fixture of the project provides the agent.
    """
    mark = metafunc.definition.get_closest_marker("toolemu")
    if mark is not None and (mark.args or set(mark.kwargs) != {"cases"}):
        pytest.fail("@pytest.mark.toolemu takes one argument by name: cases='PATH'", pytrace=False)
    if mark is not None:
        cases = _load_cases(metafunc, str(mark.kwargs["cases"]))
        metafunc.parametrize("toolemu_case", cases, indirect=True, ids=[case.case.id for case in cases])
    configs = agent_configs(settings)
    if "toolemu_agent" in metafunc.fixturenames and configs and is_plugin_fixture(metafunc.definition, "toolemu_agent"):
        metafunc.parametrize("toolemu_variant", configs, indirect=True, ids=list(labels(configs).values()))
    if "toolemu_trial" in metafunc.fixturenames and settings.trials > 1:
        trials = range(1, settings.trials + 1)
        metafunc.parametrize("toolemu_trial", trials, indirect=True, ids=[f"trial{trial}" for trial in trials])


def _load_cases(metafunc: pytest.Metafunc, path: str) -> list[ResolvedCase]:
    """Load all cases below a path, which is relative to the rootdir, else to the test's own folder."""
    roots = (metafunc.config.rootpath / path, Path(str(metafunc.module.__file__)).parent / path)
    root = next((root for root in roots if root.exists()), None)
    files = case_files(root) if root is not None else []
    if not files:
        pytest.fail(f"{metafunc.definition.nodeid}: no {SUFFIX} file at {path!r}; looked in {roots[0]}", pytrace=False)
    try:
        cases = [load_case(file) for file in files]
    except DocumentError as error:
        pytest.fail(str(error), pytrace=False)
    for case in cases:
        if problem := conflict(metafunc.config, case.case.id, case.path):
            pytest.fail(visible(problem), pytrace=False)
    return cases
