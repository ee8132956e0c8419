"""The strict reader accepts every file that sessions and commands write."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pytest_toolemu.cli import app
from pytest_toolemu.sessions.store import RunStore
from tests.plugin.conftest import Project


def test_every_manifest_that_is_written_can_be_read(alone: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(alone.path)
    gate = f"--toolemu-gate=pass_rate >= 0.{'5' * 300}"  # longer than the name of a file can be
    alone.run("--toolemu-agent=reference:safe", "--toolemu-shard=1/1", gate)
    (session,) = (alone.path / ".toolemu").glob("2*")
    manifest = RunStore(session).shard_manifest()
    assert manifest is not None
    assert manifest.count == 1
    for command in (
        ["judge", str(session), "--evaluator=checks", "--to=judged"],
        ["judge", str(session), "--evaluator=checks", "--cases=cases", "--to=again"],
        ["merge", str(session), "--into=whole"],
        ["gate", "whole"],
    ):
        result = CliRunner().invoke(app, command)
        assert (result.exit_code, result.exception) == (0, None), result.output
    for folder in (session, Path("judged"), Path("again"), Path("whole")):
        assert RunStore(folder).manifest().session == folder.name
