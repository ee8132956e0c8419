"""LangChain and LangGraph in an environment of its own, because it installs a pytest plugin that every run would load.

The first run installs it into ``.live/langchain`` (150 MB), where it is kept.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.framework_environment import check_adapter, check_example, interpreter_with

NO_PLUGIN = ("-p", "no:langsmith_plugin")


@pytest.fixture(scope="module")
def python() -> Path:
    """Return the interpreter of an environment with LangChain, LangGraph, and this package."""
    return interpreter_with("langchain", "langchain>=1.4,<2")


@pytest.mark.timeout(900)
def test_the_adapter(python: Path) -> None:
    check_adapter(python, "langchain", 15, *NO_PLUGIN)


@pytest.mark.timeout(900)
def test_the_adapter_of_graphs(python: Path) -> None:
    check_adapter(python, "langchain", 50, *NO_PLUGIN, file="test_graphs.py")


@pytest.mark.parametrize("name", ["langchain", "langgraph"])
@pytest.mark.timeout(900)
def test_the_example(python: Path, name: str, tmp_path: Path) -> None:
    check_example(python, name, tmp_path, *NO_PLUGIN)
