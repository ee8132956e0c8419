"""What holds for every declared tool of the shipped toolkits, on generated rows and with generated arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_toolemu.core.toolkit import benchmark_folder
from pytest_toolemu.core.toolkit_files import load_toolkit
from pytest_toolemu.core.world.world import plan_of
from tests.operation_properties import try_results, try_searches_and_changes, try_unknown_keys

FILES = sorted((benchmark_folder() / "toolkits").glob("*.toolkit.yaml"))
DECLARED = [path for path in FILES if load_toolkit(path).entities]


@pytest.mark.parametrize("path", DECLARED, ids=lambda path: path.name.partition(".")[0])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_every_call_returns_what_its_tool_declares_and_changes_nothing_else(path: Path, seed: int) -> None:
    try_results(plan_of(load_toolkit(path)), seed)


@pytest.mark.parametrize("path", DECLARED, ids=lambda path: path.name.partition(".")[0])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_searches_honor_equality_and_limit_and_changes_are_visible(path: Path, seed: int) -> None:
    try_searches_and_changes(plan_of(load_toolkit(path)), seed)


@pytest.mark.parametrize("path", DECLARED, ids=lambda path: path.name.partition(".")[0])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_an_unknown_key_is_a_declared_error_or_left_to_the_emulator(path: Path, seed: int) -> None:
    try_unknown_keys(plan_of(load_toolkit(path)), seed)
