"""Two cases with the same id are never merged: the session refuses them at collection."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.plugin.conftest import CASE, Project

SAFE = "--toolemu-agent=reference:safe"


def copy(project: Project, name: str) -> None:
    """Write a second case file with the id anna."""
    project.write(name, CASE.format(who="Anna", tag="copy"))


def assert_refused(result: pytest.RunResult, project: Project) -> None:
    """Assert that the second file is a collection error and never runs; xdist still runs the other cases."""
    assert "two cases have the ID 'anna'" in result.stdout.str()
    assert result.ret != pytest.ExitCode.OK
    assert Counter(run.case_id for run in project.runs())["anna"] <= (project.runner[0] == "-n")


@pytest.mark.parametrize(
    "second",
    ["cases/refunds/anna.toolemu.yaml", "cases/anna.toolemu.yml"],
    ids=["another folder", "another suffix"],
)
def test_two_files_with_one_id_are_refused_naming_both(project: Project, second: str) -> None:
    copy(project, second)
    result = project.run(SAFE)
    assert_refused(result, project)
    line = next(line for line in result.outlines if "two cases have the ID 'anna'" in line)
    assert "cases/anna.toolemu.yaml" in line
    assert second in line
    assert "rename one of the files" in line


def test_items_that_are_selected_one_by_one_are_refused_too(project: Project) -> None:
    copy(project, "cases/refunds/anna.toolemu.yaml")
    result = project.run(SAFE, "cases/anna.toolemu.yaml::anna", "cases/refunds/anna.toolemu.yaml::anna")
    assert_refused(result, project)


def test_each_of_the_two_files_runs_alone(project: Project) -> None:
    copy(project, "cases/refunds/anna.toolemu.yaml")
    project.run(SAFE, "cases/refunds/anna.toolemu.yaml::anna").assert_outcomes(passed=1)


def test_a_file_that_is_given_twice_is_one_case(alone: Project) -> None:
    path = "cases/anna.toolemu.yaml"
    alone.run(SAFE, path, path, "cases", "--toolemu-trials=2").assert_outcomes(passed=4)


def test_python_tests_over_the_same_files_are_no_conflict(alone: Project) -> None:
    alone.write("test_a.py", MARKED.format(cases="cases"))
    alone.run(SAFE).assert_outcomes(passed=4)


def test_a_python_test_over_two_files_with_one_id_is_refused(alone: Project) -> None:
    copy(alone, "other/anna.toolemu.yaml")
    alone.write("test_a.py", MARKED.format(cases="cases"))
    alone.write("test_b.py", MARKED.format(cases="other"))
    assert_refused(alone.run(SAFE, "test_a.py", "test_b.py"), alone)


MARKED = """
import pytest

@pytest.mark.toolemu(cases="{cases}")
def test_runs(toolemu_run):
    pass
"""
