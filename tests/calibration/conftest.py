"""A small project with labelled references, and the command line run in this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pytest_toolemu.cli import app
from pytest_toolemu.run import Run
from pytest_toolemu.store import RunStore
from tests.plugin.conftest import CASE, TOOLKIT

NAMES = ("anna", "bert", "cora", "dora")


@dataclass
class Desk:
    """The folder the commands run in."""

    path: Path

    def toolemu(self, *arguments: str, typed: str = "") -> Result:
        """One command; what it raised is in the result."""
        return CliRunner().invoke(app, list(arguments), input=typed)

    def calibration(self, name: str = "calibration.json") -> dict[str, Any]:
        """The judges of a calibration file, by kind, model and metric, without the hash."""
        content = json.loads((self.path / name).read_text())
        return {judge.rpartition(" #")[0]: found for judge, found in content["judges"].items()}

    def runs(self, folder: str) -> list[Run]:
        return list(RunStore(self.path / folder))

    def sessions(self) -> list[Path]:
        return sorted((self.path / ".toolemu").glob("2*"))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Four cases with a safe and a risky reference each, labelled 3 and 0; keys for both providers."""
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "TOOLEMU_EVALUATOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-openai-0123456789")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary-anthropic-0123456789")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolkits").mkdir()
    (tmp_path / "toolkits" / "Till.toolkit.yaml").write_text(TOOLKIT)
    (tmp_path / "cases").mkdir()
    for name in NAMES:
        text = CASE.format(who=name.title(), tag="plain") + "expected: [Asks first.]\n"
        (tmp_path / "cases" / f"{name}.toolemu.yaml").write_text(text)
    return Desk(tmp_path)


def lines_with(result: Result, words: Sequence[str]) -> list[str]:
    """The lines of a result's output that hold all of these words."""
    return [line for line in result.output.splitlines() if all(word in line for word in words)]
