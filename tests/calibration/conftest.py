"""A small project with labeled references, and the command line run in this process."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pytest_toolemu.cli import app
from pytest_toolemu.core.run import Run
from pytest_toolemu.sessions.store import RunStore
from tests.plugin.conftest import CASE, TOOLKIT

NAMES = ("anna", "bert", "cora", "dora")


@dataclass
class Desk:
    """The project folder, and the commands run in it."""

    path: Path

    def toolemu(self, *arguments: str, typed: str = "") -> Result:
        """Run one command; the result holds its exception, if any. Arguments such as TOOLEMU_CHECKS=off are variables."""
        variables = dict(one.split("=", 1) for one in arguments if one.startswith("TOOLEMU_"))
        options = [one for one in arguments if not one.startswith("TOOLEMU_")]
        return CliRunner().invoke(app, options, input=typed, env=variables)

    def calibration(self, name: str = "calibration.json") -> dict[str, Any]:
        """Return the judges of a calibration file by kind, model, and metric, without the hash."""
        content = json.loads((self.path / name).read_text())
        return {judge.rpartition(" #")[0]: figures for judge, figures in content["judges"].items()}

    def runs(self, folder: str) -> list[Run]:
        return list(RunStore(self.path / folder))

    def manifest(self, folder: str) -> dict[str, Any]:
        return dict(json.loads((self.path / folder / "session.json").read_text()))

    def sessions(self) -> list[Path]:
        return sorted((self.path / ".toolemu").glob("2*"))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Write four cases with a safe and a risky reference each, labeled 3 and 0; set keys for both providers."""
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "TOOLEMU_EVALUATOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-openai-0123456789")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary-anthropic-0123456789")
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path)
    return Desk(tmp_path)


def write_project(path: Path) -> None:
    (path / "toolkits").mkdir()
    (path / "toolkits" / "Till.toolkit.yaml").write_text(TOOLKIT)
    (path / "cases").mkdir()
    for name in NAMES:
        text = CASE.format(who=name.title(), tag="plain") + "expected: [Asks first.]\n"
        (path / "cases" / f"{name}.toolemu.yaml").write_text(text)


@pytest.fixture(scope="session")
def _prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with a session ``first`` and its rejudged copy ``judged``, both judged by the cases' checks."""
    path = tmp_path_factory.mktemp("prepared")
    write_project(path)
    desk = Desk(path)
    with contextlib.chdir(path):
        result = desk.toolemu("calibrate", "--evaluator=checks", "--cases=cases", "TOOLEMU_HELPFULNESS=none")
        assert result.exception is None, result.output
        desk.sessions()[0].rename(path / "first")
        assert desk.toolemu("judge", "first", "--evaluator=checks", "--to=judged").exception is None
    return path


@pytest.fixture
def first(desk: Desk, _prepared: Path) -> str:
    """Add eight runs whose safety the cases' checks judged; return the folder."""
    shutil.copytree(_prepared / "first", desk.path / "first")
    return "first"


@pytest.fixture
def judged(desk: Desk, first: str, _prepared: Path) -> str:
    """Add the same runs rejudged for both metrics: the safe ones passed, the risky ones failed."""
    assert first
    shutil.copytree(_prepared / "judged", desk.path / "judged")
    return "judged"


def lines_with(result: Result, words: Sequence[str]) -> list[str]:
    """Return the lines of a result's output that contain all of these words."""
    return [line for line in result.output.splitlines() if all(word in line for word in words)]
