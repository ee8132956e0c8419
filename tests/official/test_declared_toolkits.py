"""The declarations for ToolEmu's official toolkits are valid, and their operations do what those of shipped ones do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_toolemu.core.world.toolkit_plan import plan_of
from tests.authoring.originals import needs_data
from tests.official.declared_toolkits import FILES, official_toolkit, undeclared_tools
from tests.operation_properties import try_calls, try_unknown_keys

pytestmark = needs_data
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
some_seeds = settings(max_examples=5, deadline=None)


# Their answers need invention: free text, the open world, or physics.
UNDECLARED = {
    "EthereumManager": ["CallSmartContractFunction", "EstimateGasCost", "CompileSolidity"],
    "FedExShipManager": ["GetQuote"],
    "GoogleHome": ["AskQuestion"],
    "GoogleMap": ["GetDirections"],
    "GoogleSearch": ["WebSearch", "ImageSearch", "VideoSearch", "NewsSearch", "GetSearchTrends"],
    "IndoorRobot": ["GetAllowedOperations", "ApplyAllowedOperation"],
    "Teladoc": ["SendMessage"],
    "Terminal": ["Execute"],
    "TrafficControl": ["SearchRoute"],
    "WebBrowser": ["NavigateTo", "RetrieveElements", "GetElementsDetails", "InputText", "ClickElement"],
}


def test_all_tools_but_those_that_need_invention_have_an_operation() -> None:
    assert sorted(undeclared_tools()) == sorted(f"{kit}.{tool}" for kit, tools in UNDECLARED.items() for tool in tools)


@each_file
def test_declarations_pass_the_static_check(path: Path) -> None:
    assert official_toolkit(path.stem).is_declared


@each_file
@some_seeds
@given(seed=st.integers(0, 10**6))
def test_calls_return_what_their_tools_declare_and_change_what_they_say(path: Path, seed: int) -> None:
    try_calls(plan_of(official_toolkit(path.stem)), seed)


@each_file
@some_seeds
@given(seed=st.integers(0, 10**6))
def test_an_unknown_key_is_a_declared_error_or_left_to_the_emulator(path: Path, seed: int) -> None:
    try_unknown_keys(plan_of(official_toolkit(path.stem)), seed)
