"""Labels find their runs by what was done; runs stay distinct by what did it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pytest_toolemu.analysis.calibration.calibration_text import validation_lines
from pytest_toolemu.analysis.calibration.labeled_runs import Label, LabeledRun, match_labels
from pytest_toolemu.analysis.calibration.validation_table import validation_table
from pytest_toolemu.analysis.rejudge import fingerprint, rejudge
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.verdict import safety_verdict
from pytest_toolemu.errors import UsageError
from pytest_toolemu.evaluators.checks import ChecksEvaluator
from pytest_toolemu.sessions.reader import read_runs, run_files
from pytest_toolemu.sessions.store import RunStore, run_file
from tests.reporting.runs import run, session


def stem(one: Run, number: int) -> str:
    """The stem of the file that ``session`` wrote for its run of this number."""
    return Path(run_file(one.case_id, one.key, str(number))).stem


def label(one: Run, number: int | None = None, annotator: str = "ada", **said: object) -> Label:
    """A label by what the run did, or by the file of the run of this number."""
    place = {"trajectory": fingerprint(one)} if number is None else {"run": stem(one, number)}
    return Label.model_validate({**place, "annotator": annotator, "critical_issue": False, **said})


def found(labels: list[Label], *folders: Path) -> list[LabeledRun]:
    items, lost = match_labels(labels, run_files(folders))
    assert lost == []
    return items


def judged_by_checks(target: Path, folder: Path) -> RunStore:
    """The records of a session, judged again by the checks of their cases."""
    store = RunStore(target)
    target.mkdir()
    for path, one in read_runs([folder]):
        made = rejudge(one, (ChecksEvaluator("safety"),), thresholds={"safety": 2}, timeout=9, source=str(path))
        store.put(asyncio.run(made), path.stem)
    return store


def test_trials_that_did_the_same_are_two_runs_with_a_label_each(tmp_path: Path) -> None:
    """One person labeled both: nobody is compared with herself, and a failure of one run is one of two."""
    first, second = run("a"), run("a", trial=2)
    assert fingerprint(first) == fingerprint(second)
    folder = session(tmp_path / "one", first, second)
    items = found([label(first, 0, safety=0), label(second, 1, safety=3)], folder)
    assert sorted((item.run.trial, [one.safety for one in item.labels]) for item in items) == [(1, [0]), (2, [3])]
    table = validation_table("", items)
    assert (table.runs, table.annotators) == (2, {"ada": 2})
    assert table.incidence is not None
    assert (table.incidence.value, table.incidence.n) == (0.5, 2)
    assert [one.kappa for one in table.agreements if "among people" in one.name] == [None, None, None, None, None]


def test_agents_that_did_the_same_are_two_runs(tmp_path: Path) -> None:
    runs = [run("a", agent) for agent in ("gpt-4o", "claude")]
    items = found([label(one, number, safety=3) for number, one in enumerate(runs)], session(tmp_path / "one", *runs))
    assert {item.run.agent for item in items} == {"gpt-4o", "claude"}


def test_a_label_of_what_was_done_holds_for_every_run_that_did_it(tmp_path: Path) -> None:
    runs = [run("a"), run("a", "claude"), run("a", trial=2)]
    items = found([label(runs[0], safety=0)], session(tmp_path / "one", *runs))
    assert [[one.safety for one in item.labels] for item in items] == [[0]] * 3
    table = validation_table("", items)
    assert (table.runs, table.annotators) == (3, {"ada": 1})
    assert next(validation_lines(table)) == ": 3 labeled runs of 1 cases; labels by ada 1"


def test_a_run_keeps_its_own_label_and_takes_over_only_one_that_is_beyond_doubt(tmp_path: Path) -> None:
    runs = [run("a", agent) for agent in ("x", "y", "z")]
    folder = session(tmp_path / "one", *runs)
    given = [label(runs[0], 0, safety=0), label(runs[1], 1, safety=3), label(runs[0], None, "bob", safety=2)]
    items = {item.run.agent: {one.annotator: one.safety for one in item.labels} for item in found(given, folder)}
    assert items == {"x": {"ada": 0, "bob": 2}, "y": {"ada": 3, "bob": 2}, "z": {"bob": 2}}


def test_records_of_one_run_under_several_judges_count_once_with_all_verdicts(tmp_path: Path) -> None:
    first = run("a", safety=0)
    folder = session(tmp_path / "one", first, run("a", trial=2, safety=0))
    store = judged_by_checks(tmp_path / "again", folder)
    items = found([label(first, safety=0)], folder, store.folder)
    assert sorted(item.run.trial for item in items) == [1, 2]
    for item in items:
        assert {verdict.evaluator for verdict in item.verdicts} == {"judge", "other", "checks"}
        assert [verdict.evaluator for verdict in item.run.verdicts] == ["checks"]
    names = [one.name for one in validation_table("", items).agreements]
    assert "safety: judge and people, quadratic" in names
    assert "safety: checks and people, quadratic" in names
    # Without the first records, the others are still two runs.
    assert len(found([label(first, safety=0)], store.folder)) == 2


def test_a_run_that_one_person_labeled_twice_is_named(tmp_path: Path) -> None:
    one = run("a")
    folder = session(tmp_path / "one", one)
    again = one.model_copy(update={"key": "0" * 64, "rejudged_from": f"x/{stem(one, 0)}.json"})
    store = RunStore(tmp_path / "again")
    store.folder.mkdir()
    other = store.put(again, "0").stem
    given = [label(one, 0, safety=0), Label(run=other, annotator="ada", safety=3)]
    with pytest.raises(UsageError) as caught:
        match_labels(given, run_files([folder, store.folder]))
    assert str(caught.value) == f"ada labeled one run twice, as {stem(one, 0)} and {other}; remove one of the labels"


def test_a_label_follows_what_was_done_and_not_a_file_that_was_written_anew(tmp_path: Path) -> None:
    before, after = run("a"), run("a", answer="Something else.")
    folder = session(tmp_path / "one", after)
    given = Label(run=stem(before, 0), trajectory=fingerprint(before), annotator="ada", safety=0)
    assert match_labels([given], run_files([folder])) == ([], [given])


def test_the_verdict_of_an_evaluator_that_judged_twice_is_the_last() -> None:
    again = run("a", safety=3)
    before = again.model_copy(update={"verdicts": (safety_verdict("judge", ()).model_copy(update={"score": 0}),)})
    item = LabeledRun("a", again, (), (before,))
    assert [v.score for v in item.verdicts if (v.evaluator, v.metric) == ("judge", "safety")] == [3]
