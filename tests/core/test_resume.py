"""Which runs of earlier sessions a resumed session takes over."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.core.case import Edition, ResolvedCase
from pytest_toolemu.core.engine import RunSpec, run_case
from pytest_toolemu.core.run import Run
from pytest_toolemu.errors import UsageError
from pytest_toolemu.sessions.manifest_records import Manifest
from pytest_toolemu.sessions.resume import ResumableSessions, rejudged, resumable_sessions
from pytest_toolemu.sessions.store import RunStore
from pytest_toolemu.settings.option_table import Settings
from pytest_toolemu.settings.resolution import resolve
from tests.core.test_engine import careful, content, emulator
from tests.evaluators.resolved_cases import resolved_case

ITEM = "cases/pay.toolemu.yaml::pay"
THRESHOLDS: Any = {"safety": 2, "helpfulness": 2}


@pytest.fixture(scope="module")
def finished() -> Run:
    return asyncio.run(run_case(RunSpec(resolved_case(), careful, emulator, (content,), THRESHOLDS)))


def settings(**chosen: str) -> Settings:
    return resolve(lambda key: chosen.get(key.removeprefix("toolemu_")), lambda _key: None, {})


def session(parent: Path, name: str, *runs: Run, resumed_from: tuple[str, ...] = (), **chosen: str) -> RunStore:
    store = RunStore.create(parent, name)
    for run in runs:
        store.put(run, ITEM)
    store.put_manifest(Manifest(settings=settings(**chosen).with_sources(), resumed_from=resumed_from))
    return store


def resumed_run(where: ResumableSessions | None, run: Run, thresholds: Any = THRESHOLDS) -> Run | None:
    assert where is not None
    return where.find(case_of(run), run.key, ITEM, thresholds, "worst")


def case_of(run: Run) -> ResolvedCase:
    return ResolvedCase(run.case.model_copy(update={"id": run.case_id}), run.toolkits, Path(run.case_path))


def resume(parent: Path, value: str = "latest", **chosen: str) -> ResumableSessions | None:
    return resumable_sessions(parent, (parent,), settings(resume=value, **chosen))


def test_a_finished_run_is_resumed_and_marked_as_resumed(tmp_path: Path, finished: Run) -> None:
    session(tmp_path, "1", finished)
    assert resumed_run(resume(tmp_path), finished) == finished.model_copy(
        update={"source": "resumed", "resumed_from": "1"}
    )


def test_without_the_option_no_run_is_resumed(tmp_path: Path, finished: Run) -> None:
    session(tmp_path, "1", finished)
    assert resumable_sessions(tmp_path, (tmp_path,), settings()) is None


def test_a_run_of_another_item_or_key_is_not_resumed(tmp_path: Path, finished: Run) -> None:
    session(tmp_path, "1", finished)
    where = resume(tmp_path)
    assert where is not None
    assert where.find(case_of(finished), finished.key, "another item", THRESHOLDS, "worst") is None
    assert where.find(case_of(finished), finished.key[:12] + "0" * 52, ITEM, THRESHOLDS, "worst") is None


def test_a_resumed_run_has_what_its_case_says_now(tmp_path: Path, finished: Run) -> None:
    session(tmp_path, "1", finished.model_copy(update={"dataset": Edition(name="ours", version="1", sha256="aa")}))
    where = resume(tmp_path)
    assert where is not None
    now = finished.case.model_copy(update={"variant_of": "pay-rent", "split": "heldout"})
    resumed = where.find(
        ResolvedCase(now, finished.toolkits, Path("pay.yaml")), finished.key, ITEM, THRESHOLDS, "worst"
    )
    assert resumed is not None
    assert (resumed.case.variant_of, resumed.case.split, resumed.dataset) == ("pay-rent", "heldout", None)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_record_is_reported_not_resumed(tmp_path: Path, finished: Run, share: float) -> None:
    path = session(tmp_path, "1", finished).path(finished, ITEM)
    record = path.read_text().rstrip()
    path.write_text(record[: int(len(record) * share)])
    where = resume(tmp_path)
    assert where is not None
    assert resumed_run(where, finished) is None
    assert "not a record of a run that this version reads" in where.unreadable[path.parent]


def test_a_run_with_a_missing_part_is_reported_not_resumed(tmp_path: Path, finished: Run) -> None:
    store = session(tmp_path, "1", finished)
    shutil.rmtree(store.folder / "parts")
    where = resume(tmp_path)
    assert where is not None
    assert resumed_run(where, finished) is None
    assert "the record is incomplete: " in where.unreadable[store.folder]


def test_a_truncated_record_is_replaced_by_one_of_an_earlier_session(tmp_path: Path, finished: Run) -> None:
    session(tmp_path, "1", finished)
    session(tmp_path, "2", finished, resumed_from=("1",)).path(finished, ITEM).write_text("{")
    resumed = resumed_run(resume(tmp_path), finished)
    assert resumed is not None
    assert resumed.resumed_from == "1"


def test_a_session_with_a_truncated_manifest_is_not_resumed(tmp_path: Path, finished: Run) -> None:
    session(tmp_path, "1", finished)
    (session(tmp_path, "2", finished).folder / "session.json").write_text('{"settings"')
    where = resume(tmp_path)
    assert where is not None
    assert where.folders == (tmp_path / "1",)


def test_temporary_files_are_ignored(tmp_path: Path, finished: Run) -> None:
    store = session(tmp_path, "1", finished)
    path = store.path(finished, ITEM)
    path.rename(path.with_name(f".{path.name}.123.abcd.tmp"))
    assert resume(tmp_path) is None


def test_the_newest_session_with_the_same_settings_is_chosen(tmp_path: Path, finished: Run) -> None:
    session(tmp_path, "1", finished, agent="noact")
    session(tmp_path, "2", finished, agent="reference:safe")
    session(tmp_path, "3", agent="noact")  # has no runs
    where = resume(tmp_path, agent="noact")
    assert where is not None
    assert where.folders == (tmp_path / "1",)
    assert resume(tmp_path, agent="noact", seed="1") is None


@pytest.mark.parametrize("name", ["concurrency", "timeout", "trials", "sample", "min-safety", "run-dir"])
def test_settings_that_cannot_change_runs_are_ignored(tmp_path: Path, finished: Run, name: str) -> None:
    session(tmp_path, "1", finished)
    assert resume(tmp_path, **{name.replace("-", "_"): "3"}) is not None


def test_a_resumed_session_can_be_resumed_with_runs_of_the_first(tmp_path: Path, finished: Run) -> None:
    session(tmp_path, "1", finished)
    session(tmp_path, "2", resumed_from=("1",))
    where = resume(tmp_path)
    assert where is not None
    assert where.folders == (tmp_path / "1",)
    assert where.names(tmp_path) == ["1"]


def test_a_session_folder_can_be_named(tmp_path: Path, finished: Run) -> None:
    session(tmp_path / "elsewhere", "1", finished)
    assert resumed_run(resume(tmp_path, "elsewhere/1"), finished)


def test_a_folder_without_runs_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    with pytest.raises(
        UsageError, match="cases contains no runs; name the folder of a session, or write --toolemu-resume=latest if"
    ):
        resume(tmp_path, "cases")


@pytest.mark.parametrize(
    ("outcome", "again", "resumed"),
    [
        ("broken", None, False), ("inconclusive", None, True),
        ("broken", "none", True), ("inconclusive", "inconclusive", False), ("failed", None, True),
    ],
)  # fmt: skip
def test_outcomes_to_run_again_can_be_selected(
    tmp_path: Path, finished: Run, outcome: str, again: str | None, resumed: bool
) -> None:
    thresholds = {"helpfulness": 3} if outcome == "failed" else finished.thresholds
    run = finished.model_copy(update={"outcome": outcome, "thresholds": thresholds})
    session(tmp_path, "1", run)
    assert bool(resumed_run(resume(tmp_path, **({"resume_again": again} if again else {})), run)) is resumed


def test_a_replayed_run_is_resumed_only_by_a_replaying_session(tmp_path: Path, finished: Run) -> None:
    exchange = json.loads(
        '{"role": "agent", "model": {}, "messages": [], "reply": {}, "replayed": "a", "started": 0.0, "seconds": 0.0}'
    )
    run = Run.model_validate_json(json.dumps({**finished.model_dump(mode="json"), "model_calls": [exchange]}))
    sessions: tuple[dict[str, str], ...] = ({}, {"replay": "recordings"})
    for number, chosen in enumerate(sessions):
        session(tmp_path, str(number), run, resumed_from=(), **chosen)
        assert bool(resumed_run(resume(tmp_path, **chosen), run)) is bool(chosen)


class TestOtherThresholds:
    def test_scores_are_compared_with_them(self, finished: Run) -> None:
        assert finished.score("helpfulness") == 2
        strict = rejudged(finished, {"safety": 2, "helpfulness": 3}, "worst")
        assert (strict.outcome, strict.reasons) == ("failed", ("helpfulness 2 < 3",))
        assert rejudged(strict, THRESHOLDS, "worst").outcome == "passed"

    def test_a_run_without_a_verdict_may_fail_but_never_passes(self, finished: Run) -> None:
        silent = finished.model_copy(update={"outcome": "inconclusive", "reasons": ("the judge refused",)})
        later = finished.model_copy(update={"verdicts": (), "outcome": "unjudged", "reasons": ("later",)})
        kept = rejudged(later, {"safety": 1}, "worst")
        assert (kept.outcome, kept.reasons, kept.thresholds) == ("unjudged", ("later",), {"safety": 1})
        assert rejudged(silent, {"safety": 1, "helpfulness": 1}, "worst").reasons == ("the judge refused",)
        assert rejudged(silent, {"safety": 2, "helpfulness": 3}, "worst").outcome == "failed"
        broken = finished.model_copy(update={"outcome": "broken"})
        assert rejudged(broken, {"safety": 2, "helpfulness": 3}, "worst") is broken
