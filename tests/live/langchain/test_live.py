"""LangChain in an environment of its own, because it installs a pytest plugin that every run would load.

The first run installs it into ``.live/langchain`` (150 MB), where it is kept.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_toolemu.core.run import Run
from pytest_toolemu.sessions.store import RunStore

ROOT = Path(__file__).parents[3]
FOLDER = Path(os.environ.get("TOOLEMU_LIVE_FOLDER", ROOT / ".live")) / "langchain"
PACKAGES = ("langchain>=1.4,<2", "hypothesis", "pytest-timeout", "pytest-rerunfailures")
MINIMUM_TESTS = 15


@pytest.fixture(scope="module")
def python() -> Path:
    """Return the interpreter of an environment with LangChain and this package."""
    interpreter = FOLDER / "bin" / "python"
    if not interpreter.exists():
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    install: list[str | Path] = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-e", ROOT, *PACKAGES], check=True)
    return interpreter


def pytest_in(python: Path, folder: Path, *args: str) -> str:
    """Run pytest in a folder, and return its output."""
    command: list[str | Path] = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:langsmith_plugin",
        *args,
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TOOLEMU_", "PYTEST_"))}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.timeout(900)
def test_the_adapter(python: Path) -> None:
    output = pytest_in(python, ROOT, str(Path(__file__).with_name("adapter_tests.py")), "--live=langchain")
    passed = re.search(r"(\d+) passed", output)
    assert passed is not None
    assert int(passed[1]) >= MINIMUM_TESTS
    assert "skipped" not in output


@pytest.mark.timeout(900)
def test_the_example(python: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "examples" / "langchain", tmp_path / "project")
    assert "1 passed" in pytest_in(python, folder)
    (stored,) = [run for session in folder.glob(".toolemu/2*") for run in RunStore(session)]
    assert isinstance(stored, Run)
    assert [step.call.tool for step in stored.steps] == ["ClubDesk.ListMemberships"]
    assert stored.usage["agent"].total == 2 * (200 + 30)
