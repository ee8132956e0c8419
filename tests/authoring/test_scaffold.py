"""``toolemu init`` and ``toolemu new``: files to start from, which never replace a file of the user."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from pytest_toolemu.authoring.lint import lint_paths
from pytest_toolemu.cli import app
from pytest_toolemu.core.case_loading import load_case, load_toolkit
from tests.usage_errors import message_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "starter"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def content(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


class TestInit:
    def test_it_writes_the_starter_example_and_the_schemas(self, folder: Path) -> None:
        output = run("init")
        written = content(folder)
        example = {name: text for name, text in content(EXAMPLE).items() if name in written}
        assert set(written) == {
            "cases/cancel-the-rehearsal.toolemu.yaml",
            "toolkits/StudioBook.toolkit.yaml",
            "my_agent.py",
            "pytest.ini",
            "release.gate.yaml",
            ".github/workflows/agent-safety.yml",
            "schemas/agent.schema.json",
            "schemas/case.schema.json",
            "schemas/toolkit.schema.json",
        }
        assert all(written[name] == text for name, text in example.items())
        assert "Next: pytest; one case fails, and the output explains why" in output

    def test_the_first_run_fails_with_the_reason(self, pytester: pytest.Pytester) -> None:
        run("init", str(pytester.path))
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["safety 1 < 2 (Likely Mild Risk), by checks: violated: fee-without-consent*"])
        output = result.stdout.str()
        assert output.count("returned: ") == 1, "of one step with two findings"
        assert "passed where asking" not in output, "a statistic of one run"

    def test_the_files_have_no_lint_problem(self, folder: Path) -> None:
        run("init")
        assert lint_paths([folder]).problems == []

    def test_existing_files_are_kept(self, folder: Path) -> None:
        (folder / "my_agent.py").write_text("# mine\n")
        output = run("init")
        assert (folder / "my_agent.py").read_text() == "# mine\n"
        assert "already exists, kept: my_agent.py" in output
        before = content(folder)
        assert "written" not in run("init")
        assert content(folder) == before

    def test_a_workflow_that_is_valid_is_written(self, folder: Path) -> None:
        run("init")
        workflow = yaml.safe_load((folder / ".github/workflows/agent-safety.yml").read_text())
        steps = workflow["jobs"]["toolemu"]["steps"]
        assert any("--toolemu-gate=release.gate.yaml" in step.get("run", "") for step in steps)

    @pytest.mark.parametrize(
        ("files", "installed"),
        [
            ({}, []),
            ({"requirements.txt": "openai\n"}, ["install -r requirements.txt"]),
            ({"pyproject.toml": "[project]\nname = 'x'\n"}, ["install -e ."]),
            ({"pyproject.toml": "[tool.ruff]\nline-length = 100\n"}, []),
        ],
    )
    def test_the_workflow_installs_what_the_project_requires(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], installed: list[str]
    ) -> None:
        for name, text in files.items():
            (folder / name).write_text(text)
        run("init")
        (pip := folder / "pip").write_text('#!/bin/sh\necho "$@" >> "$0.log"\n')
        pip.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
        workflow = yaml.safe_load((folder / ".github/workflows/agent-safety.yml").read_text())
        (script,) = (step["run"] for step in workflow["jobs"]["toolemu"]["steps"] if "pip" in step.get("run", ""))
        subprocess.run(["bash", "-e", "-c", script], check=True)
        assert (folder / "pip.log").read_text().splitlines() == ["install pytest-toolemu", *installed]

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("pyproject.toml", "[tool.pytest.ini_options]\nminversion = '8'\n"),
            ("pytest.toml", "[pytest]\n"),
            ("tox.ini", "[pytest]\n"),
            ("setup.cfg", "[tool:pytest]\n"),
        ],
    )
    def test_a_configuration_of_pytest_is_not_overridden(self, folder: Path, name: str, text: str) -> None:
        """A ``pytest.ini`` would take precedence over it."""
        (folder / name).write_text(text)
        output = run("init")
        assert not (folder / "pytest.ini").exists()
        assert f"{name} already configures pytest; name the agent there: toolemu_agent = my_agent.py:answer" in output

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("pyproject.toml", "[project]\nname = 'x'\n"),
            ("pyproject.toml", "not toml ["),
            ("setup.cfg", "[metadata]\n"),
            ("tox.ini", "no section\n"),
        ],
    )
    def test_files_without_a_configuration_of_pytest_do_not_matter(self, folder: Path, name: str, text: str) -> None:
        (folder / name).write_text(text)
        run("init")
        assert (folder / "pytest.ini").exists()

    def test_a_configuration_in_another_encoding_is_read(self, folder: Path) -> None:
        (folder / "pytest.ini").write_bytes("[pytest]\naddopts = -v # größer\n".encode("cp1252"))
        assert "pytest.ini already configures pytest" in run("init")

    def test_schemas_that_cannot_be_written_are_one_message(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "bad.json").write_text("a file")
        message = message_of(monkeypatch, capsys, "new", "schemas", "bad.json")
        assert message == "bad.json/case.schema.json: cannot be written: File exists; name another folder"

    def test_a_folder_that_cannot_be_written_is_one_message(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "shop").write_text("a file")
        message = message_of(monkeypatch, capsys, "init", "shop")
        assert message.startswith("shop")
        assert message.endswith("cannot be written: Not a directory; choose another folder")

    def test_a_configuration_that_names_an_agent_needs_nothing(self, folder: Path) -> None:
        (folder / "pytest.ini").write_text("[pytest]\ntoolemu_agent = mine.py:run\n")
        assert "already configures pytest" not in run("init")

    def test_another_folder_is_named_in_the_next_command(self, folder: Path) -> None:
        assert "Next: cd shop && pytest" in run("init", "shop")
        assert (folder / "shop" / "my_agent.py").is_file()


class TestNew:
    def test_a_new_toolkit_is_valid_and_only_its_gaps_are_remarked(self, folder: Path) -> None:
        output = run("new", "toolkit", "TicketDesk")
        path = Path("toolkits/TicketDesk.toolkit.yaml")
        assert f"written: {path}; replace each 'TODO:', then run: toolemu lint {path}" in output
        assert load_toolkit(path).name == "TicketDesk"
        problems = lint_paths([folder]).problems
        assert {problem.rule for problem in problems} == {"placeholder"}
        assert len(problems) == path.read_text().count("TODO: ")
        assert 'warning: "TODO: a readable name" is a gap; replace the text' in str(problems[0])

    def test_a_new_case_is_valid_and_shows_the_tools_and_rows_of_its_toolkits(self) -> None:
        run("new", "toolkit", "TicketDesk")
        run("new", "case", "close-it", "--toolkits", "TicketDesk, MailDesk")
        path = Path("cases/close-it.toolemu.yaml")
        resolved_case = load_case(path)
        assert resolved_case.case.toolkits == ("TicketDesk", "MailDesk")
        assert [check.never.tools for check in resolved_case.case.checks if check.never] == [("TicketDesk.CloseItem",)]
        text = path.read_text()
        assert "#   TicketDesk.CloseItem (irreversible): {item_id: string}" in text
        assert '#     item: # each row: {item_id: string, name: string, status: "open" | "closed"}' in text
        problems = lint_paths([path]).problems
        assert {problem.level for problem in problems} == {"warning"}
        # The risky reference has no calls yet, so no check sees a harm.
        assert {problem.rule for problem in problems} == {"placeholder", "untested-check", "label"}

    def test_a_case_for_tools_that_only_read_has_no_check_on_harm(self) -> None:
        fields: dict[str, Any] = yaml.safe_load((EXAMPLE / "toolkits/StudioBook.toolkit.yaml").read_text())
        Path("toolkits").mkdir()
        fields |= {"name": "Reader", "tools": fields["tools"][:1]}
        Path("toolkits/Reader.toolkit.yaml").write_text(json.dumps(fields))
        run("new", "case", "look", "--toolkits", "Reader")
        assert [check.never for check in load_case(Path("cases/look.toolemu.yaml")).case.checks] == [None]

    @pytest.mark.parametrize("kind", ["case", "toolkit"])
    def test_the_header_names_the_schemas_of_the_project_or_else_of_the_package(self, kind: str, folder: Path) -> None:
        def header(path: Path) -> str:
            return path.read_text().splitlines()[0].partition("$schema=")[2]

        def write(name: str) -> Path:
            if kind == "toolkit":
                run("new", "toolkit", name, "--into", "deep/er")
                return folder / f"deep/er/{name}.toolkit.yaml"
            run("new", "case", name, "--toolkits", "MailDesk", "--into", "deep/er")
            return folder / f"deep/er/{name}.toolemu.yaml"

        first = header(write("First"))
        assert first.startswith("../")
        assert (folder / "deep/er" / first).is_file()
        run("new", "schemas", "schemas")
        second = header(write("Second"))
        assert second == f"../../schemas/{kind}.schema.json"

    def test_problems_are_one_message_with_the_fix(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run("new", "toolkit", "TicketDesk")
        before = Path("toolkits/TicketDesk.toolkit.yaml").read_text()
        messages = {
            (
                "new",
                "toolkit",
                "TicketDesk",
            ): "toolkits/TicketDesk.toolkit.yaml: already exists and was not changed; choose another name, or delete the file",
            ("new", "toolkit", "9x"): '"9x" cannot be the name of a toolkit; use letters and digits, begin with a '
            "letter, and use at most 40 characters",
            ("new", "case", "a/b", "--toolkits", "TicketDesk"): '"a/b" cannot be the ID of a case: use letters, '
            "digits, '-', '_', and '.', and begin with a letter or digit",
            ("new", "case", "x", "--toolkits", "TicketDsk"): "unknown toolkit 'TicketDsk'; did you mean 'TicketDesk'?",
            (
                "new",
                "case",
                "x",
                "--toolkits",
                ",",
            ): "--toolkits names no toolkit; name at least one, such as --toolkits BankManager",
            ("new", "toolkit", "Other", "--into", "toolkits/TicketDesk.toolkit.yaml"): "toolkits/TicketDesk.toolkit."
            "yaml/Other.toolkit.yaml: cannot be written: File exists; choose another folder with --into",
        }
        for arguments, message in messages.items():
            assert message_of(monkeypatch, capsys, *arguments) == message
        assert Path("toolkits/TicketDesk.toolkit.yaml").read_text() == before
