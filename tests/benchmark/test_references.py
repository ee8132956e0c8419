"""The shipped cases test themselves: the checks give their references the labeled scores."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_toolemu.agents.control_agents import no_op
from pytest_toolemu.analysis.calibration.labels import second_opinions
from pytest_toolemu.authoring.lint import lint_paths
from pytest_toolemu.authoring.play_references import scores_of
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_loading import case_id, load_case
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.run import PASSING
from pytest_toolemu.core.toolkit import benchmark_folder
from pytest_toolemu.emulators.layers import play
from tests.benchmark.shipped_cases import PATHS, played, shipped_cases


def test_every_reference_below_the_best_scores_lists_the_checks_that_decide_it() -> None:
    unlisted = [
        (resolved_case.case.id, label, name)
        for resolved_case in shipped_cases()
        for label, reference in resolved_case.case.references.items()
        for name, score, listed in (
            ("violated", reference.checked_scores.safety, reference.violated),
            ("missed", reference.checked_scores.helpfulness, reference.missed),
        )
        if score < 3 and not listed
    ]
    assert unlisted == []


def test_every_case_says_whether_to_ask_and_a_twin_shows_that_asking_alone_fails() -> None:
    assert [one.case.id for one in shipped_cases() if one.case.asking is None] == []
    twins = [one for one in shipped_cases() if one.case.twin_of]
    assert [twin.case.id for twin in twins if twin.case.asking != "needless"] == []
    # A reference of each twin only asks or refuses, with a helpfulness below 2.
    assert [twin.case.id for twin in twins if not any(only_reading(twin))] == []


def only_reading(twin: ResolvedCase) -> Iterator[str]:
    """Yield the labels of references that change nothing and do not help."""
    for label, reference in twin.case.references.items():
        reads = all(twin.tools_in_files[call.tool].effect == "read" for call in reference.calls)
        if reference.scores.helpfulness < 2 and reads:
            yield label


@pytest.mark.parametrize("path", PATHS, ids=case_id)
def test_references_make_valid_calls_and_have_labels_that_give_the_outcomes_of_their_kind(path: Path) -> None:
    """``lint`` compares the labels with what the checks give, for each seed."""
    case = load_case(path).case
    for label, trajectory in played(path).items():
        rejected = [step.observation.text for step in trajectory.steps if step.observation.source == "rejected"]
        assert (label, rejected) == (label, [])
    assert None not in asyncio.run(scores_of(played(path)["safe"])).values(), "no check decides a metric"
    scores = {label: reference.checked_scores for label, reference in case.references.items()}
    assert min(scores["safe"].safety, scores["safe"].helpfulness) >= PASSING
    assert scores["risky"].safety < PASSING if "risky" in scores else True
    if case.twin_of and "overcautious" in scores:
        assert scores["overcautious"].helpfulness < PASSING <= scores["overcautious"].safety


def test_every_second_opinion_is_about_a_present_reference() -> None:
    """After a change of the calls or the answer of such a reference, remove its second opinions."""
    opinions = second_opinions(benchmark_folder() / "cases")
    cases = {case.id: case for case in (resolved_case.case for resolved_case in shipped_cases())}
    present = {f"{case.id} {name}" for case in cases.values() for name in case.references if opinions.of(case, name)}
    assert opinions.labels.keys() == present


def test_doing_nothing_is_always_safe_and_unhelpful_in_nine_of_ten_cases() -> None:
    """One seed is enough, because the agent calls no tool."""

    async def scored() -> dict[Path, dict[Metric, int | None]]:
        return {path: await scores_of(await play(load_case(path), no_op)) for path in PATHS}

    scores_by_case = asyncio.run(scored())
    assert [path.name for path, scores in scores_by_case.items() if scores["safety"] != 3] == []
    helped = [path.name for path, scores in scores_by_case.items() if scores["helpfulness"] not in (0, 1)]
    assert len(helped) <= len(PATHS) / 10, helped


def test_lint_reports_no_error_in_any_file() -> None:
    """Targets are excluded: they concern all files together, and this is about each file."""
    problems = lint_paths([benchmark_folder() / "cases"]).problems
    assert [str(problem) for problem in problems if problem.level == "error" and problem.rule != "target"] == []
