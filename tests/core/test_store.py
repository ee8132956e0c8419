"""The run store of a session."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_toolemu.core.case import Thresholds
from pytest_toolemu.core.engine import RunSpec, run_case
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_file import load_run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.pricing import Cost
from pytest_toolemu.sessions import session_id
from pytest_toolemu.sessions.manifest_records import Manifest, PlannedCase, PlannedItem
from pytest_toolemu.sessions.store import MANIFEST, RunStore
from tests.core.test_engine import careful, content, emulator
from tests.evaluators.resolved_cases import resolved_case

FINDING = {"step": None, "outcome": "Paid twice.", "likelihood": "likely", "severity": "severe"}


@pytest.fixture
def finished() -> Run:
    return asyncio.run(run_case(RunSpec(resolved_case(), careful, emulator, (content,), thresholds={"safety": 2})))


def test_a_stored_run_is_read_back_unchanged(tmp_path: Path, finished: Run) -> None:
    store = RunStore.create(tmp_path / "runs", "one")
    path = store.put(finished)
    assert path == store.path(finished)
    assert list(store) == [finished]
    assert (tmp_path / "runs" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("secret", ["sk-1234567890", 'pä"ss\\w/ord', "two\nlines-of-it"])
def test_a_record_contains_no_credential(
    tmp_path: Path, finished: Run, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("MY_API_KEY", secret)
    path = RunStore(tmp_path).put(finished.model_copy(update={"answer": f"It is {secret}."}))
    assert load_run(path).answer == "It is [MY_API_KEY redacted]."


def test_a_lone_surrogate_is_replaced_in_a_record(tmp_path: Path, finished: Run) -> None:
    path = RunStore(tmp_path).put(finished.model_copy(update={"case_path": "caf\udce9.yaml"}))
    assert load_run(path).case_path == "caf?.yaml"


def test_a_failed_write_keeps_the_previous_file_and_leaves_no_temporary_file(
    tmp_path: Path, finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path)
    store.put(finished)

    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pytest_toolemu.formats.file_access.os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        store.put(finished.model_copy(update={"answer": "new"}))
    monkeypatch.undo()
    assert list(store) == [finished]
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"case": {}, "case_id": "x"}'])
def test_an_invalid_record_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a--0.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"a--0\.json: not a record of a run that this version reads"):
        load_run(path)


@pytest.mark.parametrize(
    ("metric", "edited", "problem"),
    [
        ("safety", {"score": 2, "label": "Certain No Risk"}, "has the score 2, but its label 'Certain No Risk' means 3"),
        ("safety", {"findings": [FINDING]}, "has the score 3, but a finding of it means 0"),
        ("safety", {"evaluator": "checks", "reason": "violated: paid-twice"}, "but its reason says 'violated: paid-twice'"),
        ("safety", {"score": 1, "label": ""}, "outcome is 'passed', but its verdicts and thresholds mean 'failed'"),
        ("", {"verdicts": []}, "verdicts and thresholds mean 'inconclusive'"),
        ("", {"outcome": "failed"}, "outcome is 'failed', but its verdicts and thresholds mean 'passed'"),
    ],
)  # fmt: skip
def test_a_record_edited_by_hand_is_refused(
    tmp_path: Path, finished: Run, metric: str, edited: dict[str, object], problem: str
) -> None:
    path = RunStore(tmp_path).put(finished)
    record = json.loads(path.read_text())
    (next((one for one in record["verdicts"] if one["metric"] == metric), record)).update(edited)
    path.write_text(json.dumps(record))
    with pytest.raises(UsageError, match=rf"--.*json: the record contradicts itself: .*{re.escape(problem)}"):
        load_run(path)


def test_a_case_with_a_threshold_of_its_own_is_not_decided_by_another(tmp_path: Path, finished: Run) -> None:
    case = finished.case.model_copy(update={"thresholds": Thresholds(safety=3)})
    path = RunStore(tmp_path).put(finished.model_copy(update={"case": case}))
    with pytest.raises(UsageError, match="the threshold of safety is 2, but the case requires 3"):
        load_run(path)


def test_a_manifest_is_read_back(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    assert store.manifest().is_empty
    planned = PlannedCase(items={"a": PlannedItem(agent="gpt-4o")})
    written = Manifest(session="x", planned={"a": planned}, cost={"agent": Cost(calls=1)}, judged_from=("y",))
    store.put_manifest(written)
    assert store.manifest() == written
    assert json.loads((tmp_path / MANIFEST).read_text())["judged_from"] == ["y"]


def test_session_ids_are_unique() -> None:
    assert len({session_id() for _ in range(100)}) == 100


def test_session_ids_sort_by_time_even_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for now in (1_790_000_000.0, 1_790_000_000.3, 1_790_000_000.999, 1_790_000_001.0):
        monkeypatch.setattr("time.time", lambda now=now: now)
        names.append(session_id())
    assert names == sorted(names)


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    former = os.umask(request.param)
    yield
    os.umask(former)


@pytest.mark.usefixtures("umask")
def test_only_the_owner_can_read_a_session(tmp_path: Path, finished: Run) -> None:
    store = RunStore.create(tmp_path / "new" / "runs", "one")
    files = [store.put(finished), store.folder.parent / ".gitignore", *(store.folder / "parts").iterdir()]
    assert {
        mode(folder) for folder in (store.folder / "parts", store.folder, store.folder.parent, tmp_path / "new")
    } == {0o700}
    assert {mode(file) for file in files} == {0o600}


@pytest.mark.parametrize(
    ("umask", "folder", "file"), [(0o022, 0o755, 0o644), (0o027, 0o750, 0o640)], indirect=["umask"]
)
@pytest.mark.usefixtures("umask")
def test_a_session_may_follow_the_umask(tmp_path: Path, finished: Run, folder: int, file: int) -> None:
    tmp_path.chmod(0o755)
    store = RunStore.create(tmp_path / "runs", "one", private=False)
    assert (mode(store.folder), mode(store.put(finished))) == (folder, file)


def test_a_run_directory_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert mode(RunStore.create(tmp_path, "one").folder) == 0o700
    assert mode(tmp_path) == 0o755


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
