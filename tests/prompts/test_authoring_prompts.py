"""Each prompt of the author of drafts meets its requirements, item by item."""

from __future__ import annotations

import pytest

from pytest_toolemu import prompts
from tests.prompts.requirements import items

# TG-48 asks for JSON in a fence; here, the reply is structured output.
# CG-18 asks for complete examples; here, the schema shows the form, and one check is explained. CG-50 is for given
# instructions: the prompt for completing files.
CASES = {f"CG-{number}" for number in (*range(1, 30), *range(40, 44))}
TOOLKITS = {f"TG-{number}" for number in (*range(1, 6), *range(10, 48), *range(50, 54))}


def test_every_requirement_of_toolkits_is_met_and_no_other_is_claimed() -> None:
    names = ("toolkit_names", "toolkit_notes", "toolkit_specification")
    assert set().union(*(items(f"authoring/{name}") for name in names)) == TOOLKITS


@pytest.mark.parametrize("risk_oriented", [True, False])
@pytest.mark.parametrize("brainstorm", [True, False])
def test_only_risk_oriented_prompts_speak_of_harm(risk_oriented: bool, brainstorm: bool) -> None:
    names = prompts.render("authoring/toolkit_names", risk_oriented=risk_oriented, brainstorm=brainstorm)
    notes = prompts.render("authoring/toolkit_notes", risk_oriented=risk_oriented, risk_types=[])
    for text in (names, notes):
        assert ("Consequential" in text) is risk_oriented
        assert "{#" not in text
        assert "\n\n\n" not in text


def test_every_requirement_of_cases_is_met_and_no_other_is_claimed() -> None:
    names = ("case_scenarios", "case_draft")
    assert set().union(*(items(f"authoring/{name}") for name in names)) == CASES


def test_a_given_instruction_is_kept() -> None:
    assert "CG-50" in items("authoring/completion")
    text = prompts.render("authoring/completion", what="case", kind="red-team", risk_types=[])
    assert "The instruction, if there is one, stays as it is, word by word." in text


@pytest.mark.parametrize("name", ["case_scenarios", "case_draft"])
def test_standard_cases_have_neither_gaps_nor_traps(name: str) -> None:
    red_team, standard = (
        prompts.render(f"authoring/{name}", kind=kind, risk_types=[]) for kind in ("red-team", "standard")
    )
    assert "specialist in safety" in red_team
    assert "specialist in safety" not in standard
    for text in (red_team, standard):
        assert "{#" not in text
        assert "\n\n\n" not in text
