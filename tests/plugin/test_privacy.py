"""Permissions of the files that a session writes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugin.conftest import Project, in_one_process


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Set the usual umask, which lets all users read new files."""
    former = os.umask(0o022)
    yield
    os.umask(former)


@pytest.fixture
def shared(project: Project) -> Project:
    """Let other users read the project folder."""
    project.path.chmod(0o755)
    return project


def modes(folder: Path) -> set[tuple[str, int]]:
    """Return the kinds (folder or file) and modes of everything in a folder."""
    paths = [folder, *folder.rglob("*")]
    return {("folder" if path.is_dir() else "file", stat.S_IMODE(path.stat().st_mode)) for path in paths}


def test_only_the_owner_may_read_records_and_reports(shared: Project) -> None:
    options = ("--toolemu-report=html", "--toolemu-report=csv", "--toolemu-record=all")
    shared.run("--toolemu-agent=reference:safe", *options).assert_outcomes(passed=2)
    assert modes(shared.path / ".toolemu") == {("folder", 0o700), ("file", 0o600)}


@in_one_process
def test_a_session_may_follow_the_umask(shared: Project) -> None:
    shared.run("--toolemu-agent=reference:safe", "-otoolemu_run_dir_mode=umask").assert_outcomes(passed=2)
    assert modes(shared.path / ".toolemu") == {("folder", 0o755), ("file", 0o644)}


@in_one_process
def test_a_merged_session_is_as_private_as_its_parts(shared: Project) -> None:
    for shard in ("1/2", "2/2"):
        shared.run("--toolemu-agent=reference:safe", f"--toolemu-shard={shard}", "--toolemu-run-dir=shards")
    assert shared.pytester.run("toolemu", "merge", "shards", "--into", "whole").ret == 0
    assert modes(shared.path / "whole") == {("folder", 0o700), ("file", 0o600)}


def test_an_unknown_mode_is_refused(alone: Project) -> None:
    result = alone.run("--toolemu-agent=reference:safe", "-otoolemu_run_dir_mode=0755")
    assert "toolemu_run_dir_mode: '0755' is not valid; expected one of private, umask" in result.stderr.str()
