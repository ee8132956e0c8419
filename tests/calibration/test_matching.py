"""Labels are matched to runs by trajectory; equal trajectories of different runs stay distinct."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pytest_toolemu.analysis.calibration.labels import (
    Label,
    LabeledRun,
    distinct_subjects,
    labels_by_annotator,
    match_labels,
)
from pytest_toolemu.analysis.rater_agreement import label_agreements
from pytest_toolemu.analysis.rejudge import fingerprint, rejudge
from pytest_toolemu.core.run import Run, safety_verdict
from pytest_toolemu.errors import UsageError
from pytest_toolemu.evaluators.checks import ChecksEvaluator
from pytest_toolemu.sessions.store import RunStore, read_runs, run_file, run_files
from tests.reporting.runs import run, session


def stem(stored: Run, number: int) -> str:
    """Return the stem of the file that ``session`` wrote for the run with this number."""
    return Path(run_file(stored.case_id, stored.key, str(number))).stem


def label(stored: Run, number: int | None = None, annotator: str = "ada", **ratings: object) -> Label:
    """Return a label that names a run by its trajectory or, given a number, by its file."""
    target = {"trajectory": fingerprint(stored)} if number is None else {"run": stem(stored, number)}
    return Label.model_validate({**target, "annotator": annotator, "critical_issue": False, **ratings})


def match(labels: list[Label], *folders: Path) -> list[LabeledRun]:
    items, unmatched = match_labels(labels, run_files(folders))
    assert unmatched == []
    return items


def judged_by_checks(target: Path, folder: Path) -> RunStore:
    """Rejudge the records of a session by the checks of their cases."""
    store = RunStore(target)
    target.mkdir()
    for path, stored in read_runs([folder]):
        judged = rejudge(stored, (ChecksEvaluator("safety"),), thresholds={"safety": 2}, timeout=9, source=str(path))
        store.put(asyncio.run(judged), path.stem)
    return store


def test_a_label_of_several_equal_runs_counts_once_for_a_judge(tmp_path: Path) -> None:
    first, second = run("a"), run("a", trial=2)
    folder = session(tmp_path / "one", first, second)
    for_both = match([label(first, safety=0)], folder)
    assert len(for_both) == 2
    assert len(distinct_subjects(for_both)) == 1
    assert len(distinct_subjects(match([label(first, 0, safety=0), label(second, 1, safety=3)], folder))) == 2


def test_equal_trials_are_two_runs_with_their_own_labels(tmp_path: Path) -> None:
    """One annotator labeled both: there is no agreement among people, but two labels."""
    first, second = run("a"), run("a", trial=2)
    assert fingerprint(first) == fingerprint(second)
    folder = session(tmp_path / "one", first, second)
    items = match([label(first, 0, safety=0), label(second, 1, safety=3)], folder)
    assert sorted((item.run.trial, [one.safety for one in item.labels]) for item in items) == [(1, [0]), (2, [3])]
    assert labels_by_annotator(items) == {"ada": 2}
    assert [one.kappa for one in label_agreements(items) if "among people" in one.name] == [
        None,
        None,
        None,
        None,
        None,
    ]


def test_equal_trajectories_of_two_agents_are_two_runs(tmp_path: Path) -> None:
    runs = [run("a", agent) for agent in ("gpt-4o", "claude")]
    items = match([label(one, number, safety=3) for number, one in enumerate(runs)], session(tmp_path / "one", *runs))
    assert {item.run.agent for item in items} == {"gpt-4o", "claude"}


def test_a_label_of_a_trajectory_applies_to_every_run_with_it(tmp_path: Path) -> None:
    runs = [run("a"), run("a", "claude"), run("a", trial=2)]
    items = match([label(runs[0], safety=0)], session(tmp_path / "one", *runs))
    assert [[one.safety for one in item.labels] for item in items] == [[0]] * 3
    assert labels_by_annotator(items) == {"ada": 1}


def test_a_label_of_the_run_takes_precedence_over_one_of_its_trajectory(tmp_path: Path) -> None:
    runs = [run("a", agent) for agent in ("x", "y", "z")]
    folder = session(tmp_path / "one", *runs)
    labels = [label(runs[0], 0, safety=0), label(runs[1], 1, safety=3), label(runs[0], None, "bob", safety=2)]
    items = {item.run.agent: {one.annotator: one.safety for one in item.labels} for item in match(labels, folder)}
    assert items == {"x": {"ada": 0, "bob": 2}, "y": {"ada": 3, "bob": 2}, "z": {"bob": 2}}


def test_a_run_with_records_of_several_judges_counts_once_with_all_verdicts(tmp_path: Path) -> None:
    first = run("a", safety=0)
    folder = session(tmp_path / "one", first, run("a", trial=2, safety=0))
    store = judged_by_checks(tmp_path / "again", folder)
    items = match([label(first, safety=0)], folder, store.folder)
    assert sorted(item.run.trial for item in items) == [1, 2]
    for item in items:
        assert {verdict.evaluator for verdict in item.verdicts} == {"judge", "other", "checks"}
        assert [verdict.evaluator for verdict in item.run.verdicts] == ["checks"]
    names = [one.name for one in label_agreements(items)]
    assert "safety: judge and people, quadratic" in names
    assert "safety: checks and people, quadratic" in names
    # Without the first records, the others are still two runs.
    assert len(match([label(first, safety=0)], store.folder)) == 2


def test_two_labels_of_one_run_by_one_annotator_are_refused(tmp_path: Path) -> None:
    one = run("a")
    folder = session(tmp_path / "one", one)
    again = one.model_copy(update={"key": "0" * 64, "rejudged_from": f"x/{stem(one, 0)}.json"})
    store = RunStore(tmp_path / "again")
    store.folder.mkdir()
    other = store.put(again, "0").stem
    labels = [label(one, 0, safety=0), Label(run=other, annotator="ada", safety=3)]
    with pytest.raises(UsageError) as caught:
        match_labels(labels, run_files([folder, store.folder]))
    assert str(caught.value) == f"ada labeled one run twice, as {stem(one, 0)} and {other}; remove one of the labels"


def test_a_label_with_a_trajectory_does_not_match_a_rewritten_file(tmp_path: Path) -> None:
    before, after = run("a"), run("a", answer="Something else.")
    folder = session(tmp_path / "one", after)
    label_of_before = Label(run=stem(before, 0), trajectory=fingerprint(before), annotator="ada", safety=0)
    assert match_labels([label_of_before], run_files([folder])) == ([], [label_of_before])


def test_the_last_verdict_of_an_evaluator_counts() -> None:
    again = run("a", safety=3)
    before = again.model_copy(update={"verdicts": (safety_verdict("judge", ()).model_copy(update={"score": 0}),)})
    item = LabeledRun("a", again, (), (before,))
    assert [v.score for v in item.verdicts if (v.evaluator, v.metric) == ("judge", "safety")] == [3]
