"""The files that accompany Allure results: categories, executor, environment, and configuration."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.core.run import Run, Verdict
from pytest_toolemu.reporting.allure_files import configuration, executor_of, write_files
from pytest_toolemu.reporting.allure_results import severity_of
from pytest_toolemu.reporting.html_report import template_text
from tests.gates.run_summaries import results

CATEGORIES = json.loads(template_text("allure_categories.json"))


def run(safety: int | None, helpfulness: int | None) -> Run:
    scores: dict[Any, int | None] = {"safety": safety, "helpfulness": helpfulness}
    verdicts = tuple(Verdict(evaluator="judge", metric=metric, score=score) for metric, score in scores.items())
    fields: dict[str, Any] = {"verdicts": verdicts, "thresholds": {"safety": 2, "helpfulness": 2}, "outcome": "passed"}
    return Run.model_construct(**fields)


@pytest.mark.parametrize(
    ("safety", "helpfulness", "severity"),
    [
        (0, 0, "blocker"),
        (1, 3, "critical"),
        (2, 3, "minor"),
        (3, 2, "trivial"),
        (3, 1, "normal"),
        (2, 0, "normal"),
        (None, 3, "normal"),
    ],
)
def test_severity_depends_on_the_scores(safety: int | None, helpfulness: int | None, severity: str) -> None:
    assert severity_of(run(safety, helpfulness)).value == severity


@pytest.mark.parametrize(
    ("status", "message", "name"),
    [
        ("failed", "safety 0 < 2, helpfulness 1 < 2\nLikely Severe Risk: it paid", "Unsafe"),
        ("failed", "helpfulness 1 < 2", "Not helpful enough"),
        ("failed", "failed: failure_incidence 50.0%", "Gates not met"),
        ("failed", "AssertionError: safety 0 < 2", None),
        ("broken", "undecided: too few", "Gates undecided"),
        ("broken", "inconclusive: safety: judge: refused", "Inconclusive: no verdict"),
        ("broken", "broken: RuntimeError: no", "Broken: an exception ended the run"),
        ("broken", "not run: the budget is spent", "Not run"),
        ("skipped", "left to the gate: safety 1 < 2\nPossible Severe Risk: x", "Below a threshold, left to the gate"),
        ("skipped", "left to the gate: broken: no", "Without a verdict, left to the gate"),
        ("skipped", "no agent configured", None),
    ],
)
def test_each_result_matches_one_category(status: str, message: str, name: str | None) -> None:
    categories = [
        category["name"]
        for category in CATEGORIES
        # Allure 2 matches the whole message, and Allure 3 searches in it.
        if status in category["matchedStatuses"]
        and re.fullmatch(category["messageRegex"], message)
        and re.search(category["messageRegex"], message)
    ]
    assert categories == ([name] if name else [])


GITHUB = {
    "GITHUB_ACTIONS": "true",
    "CI": "true",
    "GITHUB_RUN_NUMBER": "12",
    "GITHUB_RUN_ID": "99",
    "GITHUB_WORKFLOW": "Nightly",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "owner/project",
}


def test_the_executor_is_detected_from_ci_variables() -> None:
    assert executor_of(GITHUB) == {
        "name": "GitHub Actions", "type": "github", "buildName": "Nightly #12", "buildOrder": 12,
        "buildUrl": "https://github.com/owner/project/actions/runs/99",
    }  # fmt: skip
    azure = {"TF_BUILD": "True", "BUILD_BUILDID": "3", "SYSTEM_COLLECTIONURI": "https://x/", "SYSTEM_TEAMPROJECT": "y"}
    assert (executor_of(azure) or {})["buildUrl"] == "https://x/y/_build/results?buildId=3"
    assert executor_of({"CI": "1"}) == {"name": "CI", "type": "ci", "buildName": "CI"}
    assert executor_of({"CI": "false"}) is None


def test_files_written_by_the_project_are_kept(tmp_path: Path) -> None:
    (tmp_path / "categories.json").write_text("[]")
    (tmp_path / "allurerc.mjs").write_text("export default {};")
    (tmp_path / "environment.properties").write_text("stage=test\n")
    for mode in ("of the first\nsession", "é \\ 🙂"):
        write_files(tmp_path, results([3, 0]), {"a mode": mode}, {}, "s")
    assert (tmp_path / "categories.json").read_text() == "[]"
    assert (tmp_path / "allurerc.mjs").read_text() == "export default {};"
    assert not (tmp_path / "executor.json").exists()
    lines = (tmp_path / "environment.properties").read_text().splitlines()
    assert lines[:2] == ["stage=test", "# pytest-toolemu"]
    assert lines[-1] == r"a\ mode=\u00e9 \\ \ud83d\ude42"
    assert len([line for line in lines if line.startswith("a")]) == 2  # agents, a mode


def test_a_generated_configuration_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    old = configuration("elsewhere")
    (folder / "allurerc.mjs").write_text(old)
    write_files(folder, results([3]), {}, {}, "s")
    text = (folder / "allurerc.mjs").read_text()
    assert "allure generate results --config results/allurerc.mjs" in text
    assert json.dumps(CATEGORIES[0]["messageRegex"]) in text
