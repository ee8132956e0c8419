"""Names in files and records never lead to other folders, and never exceed what a file system accepts."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pytest_toolemu.cli import app
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.engine import RunSpec, run_case
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import DocumentError, ToolemuError, UsageError
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.merge_sessions import merge_sessions
from pytest_toolemu.sessions.store import RunStore, mark_of, run_file
from tests.core.test_engine import careful, content, emulator
from tests.evaluators.resolved_cases import resolved_case
from tests.plugin.conftest import CASE, TOOLKIT, Project

KEY = "0123456789ab" * 4


@pytest.fixture(scope="module")
def finished() -> Run:
    thresholds: Any = {"safety": 2}
    return asyncio.run(run_case(RunSpec(resolved_case(), careful, emulator, (content,), thresholds)))


def command(*args: object) -> Result:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, ToolemuError | SystemExit), result.exc_info
    return result


def edited(path: Path, **members: Any) -> Path:
    path.write_text(json.dumps(json.loads(path.read_text()) | members, indent=1))
    return path


class TestARecord:
    @pytest.mark.parametrize(
        ("member", "value", "reason"),
        [
            ("case_id", "../PWNED", "not a valid case ID: use letters, digits, '-', '_', and '.'"),
            ("case_id", "a" * 300, "not a valid case ID: has 300 characters; at most 240 are allowed"),
            ("case_id", "/etc/passwd", "not a valid case ID"),
            ("key", "../../../PWNED", "not the key of a run, which is a hash"),
            ("case_path", "a\0b", "not a path"),
            ("case_path", "x" * 300, "not a path"),
        ],
    )
    def test_with_such_a_name_is_refused_in_one_sentence(
        self, tmp_path: Path, finished: Run, member: str, value: str, reason: str
    ) -> None:
        path = edited(RunStore(tmp_path).put(finished), **{member: value})
        with pytest.raises(UsageError) as caught:
            load_run(path)
        assert str(caught.value).startswith(f"{path}: not a record of a run that this version reads ({member}: ")
        assert reason in str(caught.value)

    def test_cannot_have_a_command_write_elsewhere(
        self, tmp_path: Path, finished: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        edited(RunStore.create(tmp_path / "runs", "one").put(finished), case_id="../PWNED")
        result = command("judge", tmp_path / "runs" / "one", "--evaluator=checks", "--to", tmp_path / "to")
        assert "not a valid case ID" in str(result.exception)
        assert not list(tmp_path.rglob("*PWNED*"))


class TestALongName:
    def test_has_a_record_whose_name_a_file_system_takes(self, tmp_path: Path, finished: Run) -> None:
        ids = ["a" * 240, "a" * 239 + "b"]
        paths = [RunStore(tmp_path).put(finished.model_copy(update={"case_id": one}), "item") for one in ids]
        assert [load_run(path).case_id for path in paths] == ids
        assert len(set(paths)) == 2
        assert max(len(os.fsencode(path.name)) for path in paths) < 230

    def test_that_is_not_too_long_is_kept(self) -> None:
        name = run_file("pay-anna", KEY, "item")
        assert name.startswith("pay-anna--0123456789ab-")
        assert mark_of(name).startswith("pay-anna--")

    def test_of_a_case_works(self, alone: Project) -> None:
        name = "a" * 240
        alone.case(name)
        result = alone.run("--toolemu-agent=reference:safe", "--toolemu-report=html", "-k", "aaa")
        result.assert_outcomes(passed=1)
        assert [run.case_id for run in alone.runs()] == [name]

    def test_of_a_case_that_is_too_long_is_refused_at_collection(self, tmp_path: Path) -> None:
        path = tmp_path / f"{'a' * 241}.toolemu.yaml"
        path.write_text(CASE.format(who="Anna", tag="x"))
        with pytest.raises(DocumentError, match=r"is the case's id; has 241 characters; at most 240 are allowed$"):
            load_case(path)


@pytest.mark.parametrize("name", ["../toolkits/Till", "/etc/passwd", "Ti/ll", "a" * 300, "a\0b", "Till.x"])
def test_a_toolkit_is_found_by_a_plain_name_only(tmp_path: Path, name: str) -> None:
    (tmp_path / "toolkits").mkdir()
    (tmp_path / "toolkits" / "Till.toolkit.yaml").write_text(TOOLKIT)
    path = tmp_path / "anna.toolemu.yaml"
    path.write_text(CASE.format(who="Anna", tag="x").replace("[Till]", f"[{json.dumps(name)}]"))
    with pytest.raises(DocumentError) as caught:
        load_case(path)
    ((line, column, message),) = caught.value.problems
    assert (line, column) == (2, 12)
    assert "cannot be the name of a toolkit; use letters and digits, begin with a letter" in message


class TestTheFolderOfAMerge:
    @pytest.fixture
    def part(self, tmp_path: Path, finished: Run) -> Path:
        store = RunStore.create(tmp_path, "part")
        store.put(finished, "item")
        store.put_manifest(Manifest(session="part"))
        return store.folder

    def refused(self, part: Path, into: Path) -> str:
        before = {path: path.read_bytes() for path in into.rglob("*") if path.is_file()}
        with pytest.raises(UsageError) as caught:
            merge_sessions([part], into)
        assert {path: path.read_bytes() for path in into.rglob("*") if path.is_file()} == before
        return str(caught.value)

    def test_is_replaced_where_a_merge_wrote_it(self, part: Path, tmp_path: Path, finished: Run) -> None:
        merge_sessions([part], tmp_path / "whole")
        RunStore(part).put(finished, "another item")
        assert len(merge_sessions([part], tmp_path / "whole").runs) == 2
        assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]

    def test_that_only_claims_to_be_merged_is_refused(self, part: Path, tmp_path: Path) -> None:
        RunStore.create(tmp_path, "mine").put_manifest(Manifest(merged_from=("part",)))
        (tmp_path / "mine" / "thesis.txt").write_text("years of work")
        assert "contains thesis.txt, which 'toolemu merge' did not write" in self.refused(part, tmp_path / "mine")

    def test_with_a_foreign_file_is_refused(self, part: Path, tmp_path: Path) -> None:
        merge_sessions([part], tmp_path / "whole")
        (tmp_path / "whole" / "thesis.txt").write_text("years of work")
        assert "contains thesis.txt, which 'toolemu merge' did not write" in self.refused(part, tmp_path / "whole")

    def test_that_is_a_link_is_refused(self, part: Path, tmp_path: Path) -> None:
        merge_sessions([part], tmp_path / "whole")
        (tmp_path / "link").symlink_to(tmp_path / "whole")
        assert "which 'toolemu merge' did not write; name another folder with --into" in self.refused(
            part, tmp_path / "link"
        )

    def test_keeps_the_reports_of_the_earlier_merge(self, part: Path, tmp_path: Path) -> None:
        merge_sessions([part], tmp_path / "whole")
        command("report", tmp_path / "whole", "--format=md")
        merge_sessions([part], tmp_path / "whole")
        assert (tmp_path / "whole" / "report.md").is_file()
