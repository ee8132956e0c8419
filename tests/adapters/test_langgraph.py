"""What the adapter of compiled graphs refuses before it needs the framework; the rest is in tests/live/langchain."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_toolemu.agents.adapters.langgraph import emulated
from pytest_toolemu.errors import UsageError
from tests.agents.scene import toolbox


class Builder:
    """Has what a graph has before it is compiled."""

    def compile(self) -> None:
        raise AssertionError("only the user compiles a graph")


@pytest.mark.parametrize(
    ("graph", "keep", "message"),
    [
        (Builder(), (), r"emulated: the graph is Builder, which cannot be invoked; pass graph\.compile\(\)"),
        ("graph", (), "the graph is str, which cannot be invoked; pass a compiled graph"),
    ],
)
def test_arguments_that_are_not_valid_are_refused(graph: Any, keep: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message), emulated(graph, toolbox(), keep=keep):
        raise AssertionError("the block must not run")
