"""Second opinions on references: calibrations use them first and apart, and they end with the calls they are about."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.analysis.calibration.labels import FILE, reference_hash, second_opinions
from pytest_toolemu.authoring.dataset_stats import as_markdown, stats
from pytest_toolemu.core.case import DATASET_FILE
from pytest_toolemu.core.case_loading import load_case
from tests.authoring.office import DATASET
from tests.calibration.conftest import Desk, lines_with

HEADER = "run,trajectory,annotator,safety,helpfulness,note\n"


def current_hash(desk: Desk, case: str, name: str) -> str:
    return reference_hash(load_case(desk.path / f"cases/{case}.toolemu.yaml").case.references[name])


@pytest.fixture
def dora_twice_labeled(desk: Desk) -> Path:
    """Return the file of second opinions: ``bo`` finds dora's risky reference safe, and ``cy`` agrees with its author."""
    (desk.path / "cases" / DATASET_FILE).write_text(DATASET)
    rows = [
        f"dora risky,{current_hash(desk, 'dora', 'risky')},bo,3,1,It asked.\n",
        f"dora risky,{current_hash(desk, 'dora', 'risky')},cy,0,0,\n",
        f"dora safe,{current_hash(desk, 'dora', 'safe')},bo,3,3,\n",
        f"dora safe,{current_hash(desk, 'dora', 'safe')},cy,3,3,\n",
    ]
    file = desk.path / "cases" / FILE
    file.write_text(HEADER + "".join(rows))
    return file


@pytest.mark.usefixtures("dora_twice_labeled")
@pytest.mark.parametrize("seed", ["1", "2", "3", "4"])
def test_a_sample_begins_with_references_that_have_second_opinions(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, seed: str
) -> None:
    monkeypatch.setenv("TOOLEMU_SEED", seed)
    command = ("calibrate", "--cases=cases", "--evaluator=checks", "TOOLEMU_HELPFULNESS=none", "--sample=1")
    result = desk.toolemu(*command)
    assert result.exception is None, result.output
    (session,) = desk.sessions()
    assert {run.case_id for run in desk.runs(str(session))} == {"dora"}


@pytest.mark.usefixtures("dora_twice_labeled")
def test_the_agreement_with_each_annotator_is_shown_apart(desk: Desk) -> None:
    result = desk.toolemu("calibrate", "--cases=cases", "--evaluator=checks", "TOOLEMU_HELPFULNESS=none")
    assert result.exception is None, result.output
    (judge,) = desk.calibration().values()
    assert (judge["labels"], judge["accuracy"]["value"]) == (8, 1), "the label of the author decides"
    sides = {name: (each["labels"], each["same_side"]["value"]) for name, each in judge["by_annotator"].items()}
    assert sides == {"reference": (2, 1), "bo": (2, 0.5), "cy": (2, 1)}
    assert lines_with(result, ["on pass or fail, bo", "50.0%"])
    assert lines_with(result, ["kappa, quadratic, cy", "1.00"])


@pytest.mark.usefixtures("dora_twice_labeled")
def test_a_second_opinion_no_longer_applies_once_the_reference_changes(desk: Desk) -> None:
    path = desk.path / "cases/dora.toolemu.yaml"
    before = load_case(path).case
    assert [label.annotator for label in second_opinions(path.parent).of(before, "risky")] == ["bo", "cy"]
    changed = before.references["risky"].model_copy(update={"answer": "I paid her."})
    case = before.model_copy(update={"references": {**before.references, "risky": changed}})
    assert second_opinions(path.parent).of(case, "risky") == ()
    (path.parent / FILE).write_text("run,annotator,safety\ndora risky,bo,3\n")
    assert [label.annotator for label in second_opinions(path.parent).of(case, "risky")] == ["bo"], "it has no hash"


@pytest.mark.usefixtures("dora_twice_labeled")
def test_agreement_and_disagreements_are_tables(desk: Desk) -> None:
    lines = as_markdown(stats([desk.path / "cases"])).splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("| labels of | "))
    assert lines[start + 2].startswith("| author and bo | safety | 1 of 2 | ")
    assert lines[-3:] == [
        "| disagreement on pass or fail (safety, helpfulness) | author | bo | cy |",
        "|---|--:|--:|--:|",
        "| dora: risky | 0, 0 | 3, 1 | 0, 0 |",
    ]


def test_a_dataset_without_the_file_has_no_second_opinions(desk: Desk) -> None:
    assert "labels of" not in as_markdown(stats([desk.path / "cases"]))
