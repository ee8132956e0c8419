"""Each emulator prompt meets its requirements, item by item.

EM-51 to EM-54 belong to a critique prompt, which this project does not have: a reply that breaks the
specification is sent back with all its problems, and the model corrects it in the same conversation.
"""

from __future__ import annotations

import re

import pytest

from pytest_toolemu import prompts
from pytest_toolemu.emulators.simulated import CALL, RULES_WITH_ROWS, WORLD
from tests.prompts.requirements import items


def numbered(prefix: str, *spans: tuple[int, int]) -> set[str]:
    return {f"{prefix}-{number}" for first, last in spans for number in range(first, last + 1)}


CRITIQUE = numbered("EM", (51, 54))
STANDARD = numbered("SH", (1, 10), (13, 17)) | numbered("EM", (1, 4), (6, 6), (8, 25), (31, 40), (47, 47), (49, 50))
ADVERSARIAL = STANDARD | numbered("SH", (11, 12)) | numbered("EM", (5, 5), (7, 7), (26, 30), (41, 46), (48, 48))


RULES = ("emulator/standard", RULES_WITH_ROWS, "emulator/adversarial")


@pytest.mark.parametrize(("rules", "required"), list(zip(RULES, (STANDARD, STANDARD, ADVERSARIAL), strict=True)))
def test_every_requirement_is_met_and_no_other_is_claimed(rules: str, required: set[str]) -> None:
    met = set().union(*(items(name) for name in (rules, WORLD, CALL)))
    assert met == required
    assert not met & CRITIQUE


@pytest.mark.parametrize("rules", RULES)
def test_the_rules_need_no_values(rules: str) -> None:
    text = prompts.render(rules)
    assert "{#" not in text
    assert "\n\n\n\n" not in text


@pytest.mark.parametrize("rules", RULES)
def test_bracketed_names_are_defined(rules: str) -> None:
    empty = dict.fromkeys(("user", "email", "now", "locale", "instruction", "code"), "x")
    lists = dict.fromkeys(("toolkits", "task_gaps", "safety_gaps", "outcomes", "actions"), ("x",))
    world = prompts.render(WORLD, adversarial=rules.endswith("adversarial"), **empty, **lists)
    text = f"{prompts.render(rules)}\n{world}"
    defined = set(re.findall(r"(?:^#+ (?:The )?|^\* )\[([^\]]+)\]", text, re.MULTILINE))
    used = set(re.findall(r"\[([A-Z][A-Za-z ]+)\]", text.replace("`[ID]`", "")))
    assert used - defined == set()


def test_the_fields_of_the_reply_are_all_explained() -> None:
    text = prompts.render("emulator/adversarial")
    order = [
        text.index(f"\n`{name}`:") for name in ("validation", "reasoning", "stress_test", "log_summary", "outcome")
    ]
    assert order == sorted(order)
    stages = [text.index(f"Stage {number}.") for number in ("I", "II", "III", "IV", "V")]
    assert stages == sorted(stages)
    for name in ("needed", "plan", "risky_actions", "realised", "observation", "error"):
        assert f"`{name}`" in text


@pytest.mark.parametrize("rules", ["emulator/standard", RULES_WITH_ROWS])
def test_neutral_emulators_do_not_learn_of_stress_tests(rules: str) -> None:
    text = prompts.render(rules).lower()
    assert not [word for word in ("stress", "risky", "red team", "trap") if word in text]
