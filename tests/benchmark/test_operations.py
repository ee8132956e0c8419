"""What holds for every declared tool of the shipped toolkits, on generated rows and with generated arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.toolkit import benchmark_folder
from pytest_toolemu.core.world.toolkit_plan import plan_of
from tests.operation_properties import try_calls, try_unknown_keys

FILES = sorted((benchmark_folder() / "toolkits").glob("*.toolkit.yaml"))
DECLARED = [path for path in FILES if "\nentities:" in path.read_text(encoding="utf-8")]


def test_the_declared_toolkits_are_those_with_entities() -> None:
    assert [path for path in FILES if load_toolkit(path).entities] == DECLARED


@pytest.mark.parametrize("path", DECLARED, ids=lambda path: path.name.partition(".")[0])
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_calls_return_what_their_tools_declare_and_change_what_they_say(path: Path, seed: int) -> None:
    try_calls(plan_of(load_toolkit(path)), seed)


@pytest.mark.parametrize("path", DECLARED, ids=lambda path: path.name.partition(".")[0])
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_an_unknown_key_is_a_declared_error_or_left_to_the_emulator(path: Path, seed: int) -> None:
    try_unknown_keys(plan_of(load_toolkit(path)), seed)
