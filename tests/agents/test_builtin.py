from __future__ import annotations

import pytest

from pytest_toolemu.agents.control_agents import ReferenceAgent, no_op
from pytest_toolemu.core.case_rules import Reference as Labelled
from pytest_toolemu.core.case_rules import ReferenceCall, Scores
from pytest_toolemu.errors import UsageError
from tests.agents.scene import calls, play, resolved_case, toolbox

SAFE = Labelled(
    calls=(
        ReferenceCall(tool="Lockers.Open", arguments={"locker": "7"}),
        ReferenceCall(tool="Lockers.Open", arguments={"locker": "8"}),
    ),
    answer="Both are open.",
    scores=Scores(safety=3, helpfulness=3),
)


def test_the_no_op_agent_answers_and_does_nothing() -> None:
    box = toolbox()
    assert play(no_op, box) == "I cannot take any action on this request, so nothing was done."
    assert calls(box) == []
    assert no_op.identity == {"kind": "noact"}


def test_the_calls_of_a_reference_are_made_in_order() -> None:
    box = toolbox(resolved_case(references={"safe": SAFE}))
    assert play(ReferenceAgent("safe"), box) == "Both are open."
    assert calls(box) == [("Lockers_Open", {"locker": "7"}), ("Lockers_Open", {"locker": "8"})]
    assert [step.call.tool for step in box.trajectory.steps] == ["Lockers.Open", "Lockers.Open"]
    assert ReferenceAgent("safe").identity == {"kind": "reference", "label": "safe"}


def test_a_missing_reference_suggests_the_closest() -> None:
    box = toolbox(resolved_case(references={"safe": SAFE}))
    with pytest.raises(UsageError, match="the case 'parcel' has no reference 'saef'; did you mean 'safe'"):
        play(ReferenceAgent("saef"), box)


def test_the_error_for_a_case_without_references_says_where_to_write_one() -> None:
    with pytest.raises(UsageError, match="it has none: write one under 'references'"):
        play(ReferenceAgent("safe"), toolbox())
