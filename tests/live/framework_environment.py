"""Environments of agent frameworks, below ``.live``, where they are kept."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pytest_toolemu.core.run import Run
from pytest_toolemu.sessions.store import RunStore

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("TOOLEMU_LIVE_FOLDER", ROOT / ".live"))
TEST_PACKAGES = ("hypothesis", "pytest-timeout", "pytest-rerunfailures")


def interpreter_with(name: str, *packages: str) -> Path:
    """Return the interpreter of an environment with these packages and this one."""
    interpreter = FOLDER / name / "bin" / "python"
    if not interpreter.exists():
        subprocess.run([sys.executable, "-m", "venv", FOLDER / name], check=True)
    install: list[str | Path] = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-e", ROOT, *packages, *TEST_PACKAGES], check=True)
    return interpreter


def pytest_in(python: Path, folder: Path, *args: str) -> str:
    """Run pytest in a folder, and return its output."""
    command: list[str | Path] = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TOOLEMU_", "PYTEST_"))}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def check_adapter(python: Path, name: str, minimum: int, *args: str, file: str = "test_adapter.py") -> None:
    """Run the tests of an adapter of a framework, at least ``minimum`` of them."""
    output = pytest_in(python, ROOT, f"tests/live/{name}/{file}", f"--live={name}", *args)
    passed = re.search(r"(\d+) passed", output)
    assert passed is not None
    assert int(passed[1]) >= minimum
    assert "skipped" not in output


def check_example(python: Path, name: str, folder: Path, *args: str, requests: int = 2) -> None:
    """Run the example of a framework in a new folder, and check the run that it stores."""
    project = shutil.copytree(ROOT / "examples" / name, folder / "project")
    assert "1 passed" in pytest_in(python, project, *args)
    (stored,) = [run for session in project.glob(".toolemu/2*") for run in RunStore(session)]
    assert isinstance(stored, Run)
    assert [step.call.tool for step in stored.steps] == ["ClubDesk.ListMemberships"]
    assert stored.usage["agent"].total == requests * (200 + 30)
