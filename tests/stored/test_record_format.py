"""The files of a run: its record, and the parts that runs share: case, toolkits and dataset."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pytest_toolemu.cli import app
from pytest_toolemu.core.case import Case, Edition
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.engine import RunSpec, run_case
from pytest_toolemu.core.run import RECORD_VERSION, Run, RunRecord, hashes_of, run_key
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.errors import ToolemuError, UsageError
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.sessions.manifest_records import Manifest, ShardManifest
from pytest_toolemu.sessions.store import RunStore
from tests.core.test_engine import careful, content, emulator
from tests.evaluators.resolved_cases import resolved_case
from tests.plugin.conftest import CASE, TOOLKIT


@pytest.fixture(scope="module")
def finished() -> Run:
    completed = asyncio.run(run_case(RunSpec(resolved_case(), careful, emulator, (content,), {"safety": 2})))
    return completed.model_copy(update={"agent": "careful", "dataset": Edition(name="ours", version="1", sha256="aa")})


def parts(folder: Path) -> list[Path]:
    return sorted((folder / "parts").iterdir())


def command(*args: object) -> str:
    """Return what a command prints, or the message of the error that it raises."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, ToolemuError | SystemExit), result.exc_info
    return str(result.exception) if isinstance(result.exception, ToolemuError) else result.output


class TestParts:
    def test_are_stored_once_for_all_runs(self, tmp_path: Path, finished: Run) -> None:
        store = RunStore(tmp_path)
        first = store.put(finished, "one")
        before = parts(tmp_path)
        store.put(finished.model_copy(update={"trial": 2}), "two")
        assert parts(tmp_path) == before
        assert len(before) == 2 + len(finished.toolkits)
        record = json.loads(first.read_bytes())
        assert record["version"] == RECORD_VERSION
        names = [record["case"], record["dataset"], *record["toolkits"]]
        assert sorted(names) == [path.stem for path in before]

    def test_are_named_by_the_hash_of_their_files(self, tmp_path: Path, finished: Run) -> None:
        RunStore(tmp_path).put(finished)
        for path in parts(tmp_path):
            assert path.name == f"{hashlib.sha256(path.read_bytes()).hexdigest()}.json"

    def test_leave_the_key_of_a_run_as_it_was(self, tmp_path: Path, finished: Run) -> None:
        run = load_run(RunStore(tmp_path).put(finished))
        assert run.hashes == hashes_of(run.case, run.toolkits)
        assert run_key(run.case_id, run.hashes, run.identity, run.trial, run.seed, run.limits) == run.key

    def test_may_be_written_by_many_at_once(self, tmp_path: Path, finished: Run) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda item: RunStore(tmp_path).put(finished, str(item)), range(24)))
        assert list(RunStore(tmp_path)) == [finished] * 24
        assert not list(tmp_path.rglob("*.tmp"))

    def test_have_no_credentials(self, tmp_path: Path, finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MY_API_KEY", "sk-1234567890")
        case = finished.case.model_copy(update={"title": "Pay with sk-1234567890"})
        path = RunStore(tmp_path).put(finished.model_copy(update={"case": case}))
        assert load_run(path).case.title == "Pay with [MY_API_KEY redacted]"

    def test_that_are_damaged_are_written_again_with_the_next_run(self, tmp_path: Path, finished: Run) -> None:
        path = RunStore(tmp_path).put(finished)
        for part in parts(tmp_path):
            part.write_text("{")
        RunStore(tmp_path).put(finished)
        assert load_run(path) == finished

    def test_that_the_disk_refuses_leave_no_record(
        self, tmp_path: Path, finished: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("pytest_toolemu.formats.file_access.os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            RunStore(tmp_path).put(finished)
        assert [path.name for path in tmp_path.rglob("*")] == ["parts"]

    def test_do_not_bring_a_deleted_session_back(self, tmp_path: Path, finished: Run) -> None:
        store = RunStore.create(tmp_path, "one")
        shutil.rmtree(store.folder)
        with pytest.raises(FileNotFoundError):
            store.put(finished)
        assert not store.folder.exists()


class TestAMissingOrDamagedPart:
    @pytest.fixture
    def session(self, tmp_path: Path, finished: Run) -> Path:
        store = RunStore.create(tmp_path, "one")
        store.put(finished, "item")
        store.put_manifest(Manifest(session="one"))
        return store.folder

    DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
        "missing": (Path.unlink, "cannot be read: No such file or directory"),
        "damaged": (lambda path: path.write_text("{}"), "is damaged: its content does not match the hash in its name"),
    }

    @pytest.mark.parametrize("damage", DAMAGES)
    @pytest.mark.parametrize("kind", ["case", "toolkit", "dataset"])
    def test_is_one_sentence_of_every_command(self, session: Path, tmp_path: Path, kind: str, damage: str) -> None:
        path = next(session.glob("*--*.json"))
        record = json.loads(path.read_bytes())
        part = session / "parts" / f"{record['toolkits'][0] if kind == 'toolkit' else record[kind]}.json"
        break_it, reason = self.DAMAGES[damage]
        break_it(part)
        expected = (
            f"{path}: the record is incomplete: {part} {reason}; restore {part.parent} from where the record was "
            "copied, or run the case again"
        )
        for args in (
            ["show", path],
            ["show", path, "--json"],
            ["report", session],
            ["gate", session, "--gate=pass_rate >= 0.5"],
            ["compare", session, session],
            ["merge", session, "--into", tmp_path / "whole"],
            ["judge", session, "--evaluator=checks", "--to", tmp_path / "judged"],
            ["label", session, "--annotator=zoe"],
            ["pin", path],
        ):
            assert command(*args) == expected

    def test_of_another_kind_is_refused(self, session: Path) -> None:
        path = next(session.glob("*--*.json"))
        record = json.loads(path.read_bytes())
        record["case"] = record["toolkits"][0]
        path.write_text(json.dumps(record))
        message = command("show", path)
        assert f"{record['case']}.json is not a case that this version reads: " in message

    @pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "a" * 63, "A" * 64, ""])
    @pytest.mark.parametrize("member", ["case", "dataset"])
    def test_has_a_name_that_leads_nowhere_else(self, session: Path, member: str, name: str) -> None:
        path = next(session.glob("*--*.json"))
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {member: name}))
        with pytest.raises(UsageError) as message:
            load_run(path)
        assert str(message.value).startswith(f"{path}: not a record of a run that this version reads ({member}: ")
        assert "not a SHA-256 hash, which has 64 hexadecimal digits" in str(message.value)


@pytest.mark.parametrize("record", [RunRecord, Run, Manifest, ShardManifest])
def test_every_key_is_described(record: type[Record]) -> None:
    schema = record.model_json_schema(by_alias=True, mode="serialization")
    own_pages = {"Case", "Toolkit"}
    models = {record.__name__: schema} | {n: m for n, m in schema.get("$defs", {}).items() if n not in own_pages}
    case_models = set(Case.model_json_schema().get("$defs", {})) | set(Toolkit.model_json_schema().get("$defs", {}))
    undescribed = [
        f"{name}.{key}"
        for name, model in models.items()
        if name not in case_models
        for key, field in model.get("properties", {}).items()
        if "description" not in field
    ]
    assert undescribed == []


class TestARecord:
    def test_is_merged_whole_if_its_files_are_links(self, tmp_path: Path, finished: Run) -> None:
        store = RunStore.create(tmp_path / "sessions", "new")
        store.put(finished, "item")
        store.put_manifest(Manifest(session="new"))
        for path in (*parts(store.folder), *store.paths()):
            path.rename(tmp_path / path.name)
            path.symlink_to(os.path.relpath(tmp_path / path.name, path.parent))
        command("merge", store.folder, "--into", tmp_path / "whole")
        shutil.rmtree(store.folder)
        assert [run.case_id for run in RunStore(tmp_path / "whole")] == [finished.case_id]
        assert not [path for path in (tmp_path / "whole").rglob("*") if path.is_symlink()]

    def test_of_another_version_is_refused(self, tmp_path: Path, finished: Run) -> None:
        path = RunStore(tmp_path).put(finished)
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"version": 2}))
        with pytest.raises(
            UsageError, match="has format version 2, but this version of pytest-toolemu reads only version 1"
        ):
            load_run(path)


class TestAnExportedRun:
    @pytest.fixture
    def exported(self, tmp_path: Path, finished: Run) -> Path:
        text = command("show", RunStore(tmp_path).put(finished), "--json")
        path = tmp_path / "elsewhere" / "run--exported.json"
        path.parent.mkdir()
        path.write_text(text)
        return path

    def test_is_self_contained(self, exported: Path, finished: Run) -> None:
        assert load_run(exported) == finished

    def test_is_read_as_a_run(self, exported: Path, tmp_path: Path) -> None:
        assert "Which of" in command("show", exported)
        assert "1 run" in command("report", exported.parent, "--format=json", "--to", tmp_path / "reports")

    def test_has_no_credentials(self, tmp_path: Path, finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        path = RunStore(tmp_path).put(finished.model_copy(update={"answer": "It is sk-1234567890."}))
        monkeypatch.setenv("MY_API_KEY", "sk-1234567890")
        assert "sk-1234567890" not in command("show", path, "--json")

    def test_can_be_pinned(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "toolkits").mkdir()
        (tmp_path / "toolkits" / "Till.toolkit.yaml").write_text(TOOLKIT)
        case = tmp_path / "anna.toolemu.yaml"
        case.write_text(CASE.format(who="Anna", tag="x"))
        run = asyncio.run(run_case(RunSpec(load_case(case), careful, emulator)))
        path = tmp_path / "run.json"
        path.write_text(command("show", RunStore.create(tmp_path, "one").put(run), "--json"))
        assert "Traceback" not in command("pin", path)
