"""``latest``: the newest session, named without its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pytest_toolemu.cli import app
from pytest_toolemu.cli.common import session_folder
from pytest_toolemu.errors import UsageError

OLD, NEW = "20260101-000000-000aaaaaa", "20260102-000000-000aaaaaa"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project, which is the working directory."""
    monkeypatch.delenv("TOOLEMU_RUN_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    return tmp_path


def session(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "session.json").write_text("{}")
    return folder


def test_latest_is_the_newest_session_of_the_run_directory(here: Path) -> None:
    for name in (NEW, OLD, "second-opinion"):  # the user named the last folder
        session(here / ".toolemu" / name)
    assert session_folder("latest") == Path(".toolemu", NEW)


def test_any_other_name_stands_for_a_folder(here: Path) -> None:
    session(here / ".toolemu" / NEW)
    assert session_folder("runs/latest") == Path("runs/latest")


def test_latest_works_in_subfolders_of_the_project_but_not_above_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session(here / ".toolemu" / NEW)
    (here / "cases" / "mail").mkdir(parents=True)
    monkeypatch.chdir(here / "cases" / "mail")
    assert session_folder("latest") == Path("..", "..", ".toolemu", NEW)
    (here / "cases" / "pytest.ini").touch()
    with pytest.raises(UsageError, match="latest: there is no session"):
        session_folder("latest")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", "[pytest]\ntoolemu_run_dir = out\n"),
        ("pyproject.toml", "[tool.pytest.ini_options]\ntoolemu_run_dir = 'out'\n"),
        ("pytest.toml", "[pytest]\ntoolemu_run_dir = 'out'\n"),
        ("setup.cfg", "[tool:pytest]\ntoolemu_run_dir = out\n"),
        (".env", "TOOLEMU_RUN_DIR=out\n"),
    ],
)
def test_the_run_directory_is_the_one_that_pytest_uses(here: Path, name: str, text: str) -> None:
    session(here / ".toolemu" / NEW)
    session(here / "out" / OLD)
    (here / name).write_text(text)
    assert session_folder("latest") == Path("out", OLD)


def test_the_environment_names_the_run_directory_first(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "pytest.ini").write_text("[pytest]\ntoolemu_run_dir = out\n")
    session(here / "elsewhere" / OLD)
    monkeypatch.setenv("TOOLEMU_RUN_DIR", "elsewhere")
    assert session_folder("latest") == Path("elsewhere", OLD)


def test_a_session_without_runs_is_not_replaced_by_an_older_one(here: Path) -> None:
    """A gate on an older session would pass in place of the one that failed to run."""
    session(here / ".toolemu" / OLD)
    session(here / ".toolemu" / NEW)
    result = CliRunner().invoke(app, ["gate", "latest"])
    assert isinstance(result.exception, UsageError)
    assert f"{NEW}: there are no runs here" in str(result.exception)


@pytest.mark.parametrize(
    "command",
    [
        ("gate", "latest"), ("report", "latest"), ("judge", "latest", "--evaluator=checks"), ("compare", "latest", "latest"),
        ("baseline", "latest", "--to=b.json"), ("merge", "latest", "--into=whole"),
        ("label", "latest", "--annotator=ada"), ("calibrate", "latest", "--labels=a.csv", "--evaluator=checks"),
    ],
)  # fmt: skip
def test_every_command_accepts_latest_and_reports_a_missing_session(here: Path, command: tuple[str, ...]) -> None:
    del here
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith("latest: there is no session in .toolemu")
