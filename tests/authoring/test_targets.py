"""Targets of a dataset for all its files together, and the lint problems about missed targets."""

from __future__ import annotations

import json

import pytest

from pytest_toolemu.authoring.dataset_stats import is_graded, length_of, opening_of
from pytest_toolemu.core.case import Case
from tests.authoring.office import CASE, OTHER, Office

FURTHER = """\
  half-done:
    calls: [{tool: Post.Find, arguments: {name: Ann}}]
    answer: There are two.
    scores: {safety: 2, helpfulness: 1}
"""


@pytest.mark.parametrize(
    ("target", "value", "expected"),
    [
        ("toolkits", 2, "toolkits: at least 2 required, 1 found"),
        ("tools", 3, "tools: at least 3 required, 2 found"),
        ("categories", 2, "categories of toolkits: at least 2 required, 1 found"),
        ("cases", 3, "cases: at least 3 required, 2 found"),
        ("primary", 3, "cases whose first toolkit is Post: at least 3 required, 2 found"),
        ("two_toolkits", 0.35, "cases with two toolkits: at least 35% required, 0.0% found (0 of 2)"),
        ("more_toolkits", 0.15, "cases with three toolkits or more: at least 15% required, 0.0% found (0 of 2)"),
        ("risk_types", {"deception": 1}, "cases of deception: at least 1 required, 0 found"),
        ("gaps", {"task": 1}, "cases that leave out task: at least 1 required, 0 found"),
        ("twins", 1, "cases with twin_of: at least 1 required, 0 found"),
        ("long", 1, "instructions of 80 words or more: at least 1 required, 0 found"),
        ("several_solutions", 1, "cases with more than one good solution: at least 1 required, 0 found"),
        ("long_tasks", 1, "cases whose reference 'safe' makes 8 calls or more: at least 1 required, 0 found"),
        ("mild", 0.4, "cases whose worst outcome is mild: at least 40% required, 0.0% found (0 of 2)"),
        ("max_one_toolkit", 0.5, "cases with the toolkit Post: at most 50% allowed, 100.0% found (2 of 2)"),
        ("graded", 1, "cases with further references scored 1 and 2: at least 1 required, 0 found"),
        ("labels", 1, "references with safety 1: at least 1 required, 0 found"),
        (
            "heldout_within", 0.05, "held-out cases: 20% within 5% required, 0.0% found (0 of 2; with few cases, this is due to chance; otherwise, choose another seed before the release)"),
        ("users", 3, "different users: at least 3 required, 2 found"),
        ("locales", 2, "locales: at least 2 required, 1 found"),
        ("years", 2, "years: at least 2 required, 1 found"),
    ],
)  # fmt: skip
def test_a_missed_target_is_reported_with_both_numbers(
    office: Office, target: str, value: object, expected: str
) -> None:
    office.case("aunt", OTHER)
    office.dataset({target: value})
    problems = [problem.partition(": ")[2] for problem in office.problems() if problem.endswith("[target]")]
    assert f"error: {expected} [target]" in problems


def test_the_place_of_a_missed_target_is_its_value(office: Office) -> None:
    office.dataset({"gaps": {"task": 1}, "cases": 2})
    assert [problem.partition(" error")[0] for problem in office.problems()] == [
        "toolemu-dataset.yaml:5:28:",
        "toolemu-dataset.yaml:5:41:",
    ]


def test_targets_that_are_met_are_not_reported(office: Office) -> None:
    office.case("aunt", OTHER.replace("split: public", FURTHER + "split: public"))
    office.dataset(
        {"toolkits": 1, "tools": 2, "categories": 1, "cases": 2, "primary": 2, "risk_types": {"wrong_person": 2},
         "gaps": {"both": 2}, "graded": 1, "users": 2, "locales": 1, "years": 1, "max_same_opening": 0.5}
    )  # fmt: skip
    assert [problem for problem in office.problems() if "[target]" in problem] == []


def test_too_many_instructions_that_press_for_time_are_reported(office: Office) -> None:
    office.case("aunt", OTHER.replace("tags: [names]", "tags: [time-pressure]"))
    office.dataset({"max_time_pressure": 0.25})
    problems = [problem.partition(": ")[2] for problem in office.problems() if "[target]" in problem]
    assert problems == ["error: cases with the tag time-pressure: at most 25% allowed, 50.0% found (1 of 2) [target]"]


def test_a_case_with_a_prompt_injection_needs_a_twin_without_it(office: Office) -> None:
    injected = CASE.replace("types: [wrong_person]", "types: [wrong_person, prompt_injection]")
    office.case("ann", injected)
    office.dataset({"injection_controls": 1.0})
    assert (
        "toolemu-dataset.yaml:5:33: error: cases of prompt_injection that have a twin, unlike ann: "
        "at least 100% required, 0.0% found (0 of 1) [target]"
    ) in office.problems()
    office.case("aunt", OTHER + "twin_of: ann\n")
    assert [problem for problem in office.problems() if "[target]" in problem] == []


def test_repeated_toolkits_and_openings_are_reported(office: Office) -> None:
    office.write(
        "toolkits/Mail.toolkit.yaml",
        (office.folder / "toolkits/Post.toolkit.yaml").read_text().replace("name: Post", "name: Mail"),
    )
    for number, name in enumerate(("ann", "aunt", "boat")):
        text = CASE if number else OTHER
        office.case(name, text.replace("[Post]", "[Post, Mail]" if number else "[Mail, Post]"))
    office.dataset({"max_same_toolkits": 2, "max_same_opening": 0.3})
    problems = [problem.partition(": ")[2] for problem in office.problems() if "[target]" in problem]
    assert problems == [
        "error: cases with Mail and Post: at most 2 allowed, 3 found [target]",
        "error: instructions that begin with 'thank ann': at most 30% allowed, 2 found of 3 [target]",
    ]


def test_only_valid_files_are_counted_and_the_others_are_reported(office: Office) -> None:
    office.case("aunt", "title: x\n")
    office.dataset({"cases": 2})
    problems = office.problems()
    assert "toolemu-dataset.yaml:5:20: error: cases: at least 2 required, 1 found [target]" in problems
    assert [problem for problem in problems if problem.startswith("aunt") and "[format]" in problem]


def test_an_unknown_target_is_refused_with_the_closest(office: Office) -> None:
    office.dataset({"locale": 3})
    assert office.problems() == [
        "toolemu-dataset.yaml:5:11: error: unknown key 'locale'; did you mean 'locales'? [format]"
    ]


def case(**changes: object) -> Case:
    content = {"title": "t", "toolkits": ["Post"], "instruction": "Do it.", **changes}
    return Case.model_validate_json(json.dumps(content))


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [("word " * 12, "terse"), ("word " * 13, "medium"), ("word " * 79, "medium"), ("word " * 80, "long"),
     ("部屋を片付けておいてね", "terse"), ("部屋を片付けておいてください、お願いします", "medium")],
)  # fmt: skip
def test_a_target_for_the_length_of_instructions(instruction: str, expected: str) -> None:
    assert length_of(case(instruction=instruction)) == expected


def test_a_target_for_the_openings_of_instructions() -> None:
    assert opening_of(case(instruction="I'm off — pay the bill, please."), 4) == "i'm off pay the"


def test_a_graded_case_has_both_middle_scores_in_further_references() -> None:
    def scored(**scores: tuple[int, int]) -> Case:
        references = {
            label: {"answer": "a", "scores": {"safety": safety, "helpfulness": helpfulness}}
            for label, (safety, helpfulness) in scores.items()
        }
        return case(references=references)

    assert is_graded(scored(partial=(2, 1)))
    assert is_graded(scored(partial=(2, 3), hasty=(0, 1)))
    assert not is_graded(scored(partial=(2, 3)))
    assert not is_graded(scored(safe=(2, 2), risky=(1, 1)))
