"""``toolemu ui``: what it prints, which folder it serves, and its messages for mistakes."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from pytest_toolemu.cli import app
from pytest_toolemu.ui.application import UiServer
from tests.ui.applications import NEWEST, run_directory
from tests.usage_errors import message_of


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the URLs to which browsers were redirected. Servers end with Ctrl-C as soon as they run."""
    urls: list[str] = []

    def interrupted(server: UiServer) -> None:
        server._socket.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(UiServer, "run", interrupted)

    def redirected(url: str) -> None:
        assert "token" not in url  # every account can read it on the browser's command line
        page = Path(urlsplit(url).path)
        assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        urls.extend(re.findall('content="0; url=(.+)"', page.read_text()))

    monkeypatch.setattr("pytest_toolemu.cli.ui._open_browser", redirected)
    return urls


def test_it_prints_and_opens_the_url_and_ends_with_ctrl_c(tmp_path: Path, opened: list[str]) -> None:
    result = CliRunner().invoke(app, ["ui", str(tmp_path)])
    assert result.exit_code == 0, result.output
    (url,) = opened
    assert url.startswith("http://127.0.0.1:")
    (printed,) = re.findall(r"http://\S+", result.output)
    assert result.output.startswith(f"{tmp_path}: {printed}")
    assert printed != url, "each token is valid once"
    assert "Ctrl-C ends it." in result.output


def test_without_a_folder_it_serves_the_run_directory_of_the_project(
    tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".toolemu").mkdir()
    (tmp_path / "cases").mkdir()
    monkeypatch.chdir(tmp_path / "cases")
    result = CliRunner().invoke(app, ["ui", "--no-browser"])
    assert result.output.startswith("../.toolemu: http://127.0.0.1:")
    assert opened == []


def test_an_address_that_others_can_reach_is_noted(tmp_path: Path, opened: list[str]) -> None:  # noqa: ARG001
    result = CliRunner().invoke(app, ["ui", str(tmp_path), "--host=0.0.0.0", "--read-only"])
    assert "note: 0.0.0.0 can be reached by others" in result.output
    assert "whoever opens the URL first can read everything; elsewhere, write this computer's address" in result.output
    assert ": http://127.0.0.1:" in result.output


def test_latest_is_the_newest_session(tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = run_directory(tmp_path / ".toolemu") / NEWEST
    (folder / "session.json").write_text("{}")
    result = CliRunner().invoke(app, ["ui", "latest"])
    assert f".toolemu/{NEWEST}: {opened[0].partition('=')[0]}=" in result.output


@pytest.mark.usefixtures("opened")
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    message = message_of(monkeypatch, capsys, "ui", "nothing")
    assert message == "nothing: no such folder; name a run directory, such as .toolemu, or a session in it"
    assert message_of(monkeypatch, capsys, "ui").startswith(
        "there is no run directory .toolemu here or in a folder above"
    )
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        message = message_of(monkeypatch, capsys, "ui", str(tmp_path), f"--port={port}")
    assert message == f"--port: port {port} of 127.0.0.1 is in use; name another one, or leave it out to get a free one"
    message = message_of(monkeypatch, capsys, "ui", str(tmp_path), "--host=192.0.2.1")
    assert message == "--host: '192.0.2.1' is no address of this computer; leave it out, or name one such as 127.0.0.1"
    message = message_of(monkeypatch, capsys, "ui", str(tmp_path), "--host=")
    assert message == "--host: '' is no address of this computer; leave it out, or name one such as 127.0.0.1"
    (tmp_path / "ada.jsonl").write_text("")
    for option in ("--labels", "--drafts"):
        message = message_of(monkeypatch, capsys, "ui", str(tmp_path), f"{option}=ada.jsonl")
        assert message == f"{option}: ada.jsonl is not a folder; name a folder, which need not exist"
    for options in (["--suite=nothere"], ["--suite=ada.jsonl"], ["--drafts=."]):
        message = message_of(monkeypatch, capsys, "ui", str(tmp_path), *options)
        assert message.endswith(
            ": cannot be the folder of the suite; name the folder into whose cases/ and toolkits/ accepted files move"
        )


@pytest.mark.usefixtures("opened")
def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Without the message, the server would wait for ever.
    monkeypatch.setattr(UiServer, "run", lambda _: pytest.fail("the server was started"))
    version = metadata.version

    def missing(name: str) -> str:
        if name == "starlette":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", missing)
    message = message_of(monkeypatch, capsys, "ui", str(tmp_path))
    assert message == "toolemu ui needs the starlette package: pip install 'pytest-toolemu[serve]'"


def test_the_command_line_and_the_plugin_do_not_import_the_server() -> None:
    code = "import sys, pytest_toolemu.cli, pytest_toolemu.plugin; print({'starlette', 'uvicorn'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
