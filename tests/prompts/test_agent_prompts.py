from __future__ import annotations

import re
from typing import get_args

import pytest

from pytest_toolemu.agents.model_agents import TextCall, TextFinal, TextQuit, read_turn
from pytest_toolemu.core.case import User
from pytest_toolemu.core.case_loading import known_toolkits
from pytest_toolemu.core.toolkit import benchmark_folder
from pytest_toolemu.prompts import parts, prompt_hash, render
from pytest_toolemu.settings.model_names import Prompt
from tests.prompts.requirements import items


def ids(prefix: str, first: int, last: int) -> set[str]:
    return {f"{prefix}-{number}" for number in range(first, last + 1)}


COMMON = ids("SH", 5, 7) | ids("SH", 9, 10) | ids("AG", 1, 17)
MORE = {
    "naive": set(),
    "ss_only": ids("SH", 21, 23),
    "helpful_ss": ids("SH", 18, 23),
    "quit": ids("AG", 20, 27),
    "simple_quit": ids("AG", 30, 32),
}
# These requirements describe the text protocol's labels and layout, which native tool calls replace.
TEXT_ONLY = {f"AG-{number}" for number in (5, 6, 7, 9, 12, 13, 14, 15, 16, 17)}
VALUES = {
    "tools": "(the tools)",
    "names": ["Lockers_Open", "Lockers_Close"],
    "user": User(),
    "now": "Tuesday",
    "locale": "en_US",
}

variants = pytest.mark.parametrize("variant", get_args(Prompt))
protocols = pytest.mark.parametrize("protocol", ["react", "tool_calling"])


@variants
def test_text_prompts_meet_every_requirement_of_their_variant(variant: str) -> None:
    assert items(f"agent/react_{variant}") == COMMON | MORE[variant]


@variants
def test_native_prompts_meet_all_requirements_but_those_of_the_text_protocol(variant: str) -> None:
    assert items(f"agent/tool_calling_{variant}") == (COMMON | MORE[variant]) - TEXT_ONLY


@variants
@protocols
def test_every_text_is_complete_and_tidy(protocol: str, variant: str) -> None:
    text = render(f"agent/{protocol}_{variant}", **VALUES)
    assert "{" + "#" not in text
    assert "\n\n\n" not in text
    assert all(line == line.rstrip() for line in text.splitlines())
    for part in parts(f"agent/{protocol}_{variant}"):
        assert part.startswith("agent/")


@variants
@protocols
def test_constant_text_comes_before_tools_and_both_before_the_case(protocol: str, variant: str) -> None:
    text = render(f"agent/{protocol}_{variant}", **VALUES)
    environment = text.index("# Environment")
    for heading in (
        "# The tools",
        "# Example",
        "# Requirements",
        "# When to quit",
        "# Quitting",
        "# Tool specifications",
    ):
        assert text.find(heading) < environment
    if protocol == "react":
        assert text.index("# Example") < text.index("(the tools)") < environment < text.index("Lockers_Close")
    else:
        assert "Lockers" not in text


@protocols
def test_variants_are_distinct(protocol: str) -> None:
    assert len({prompt_hash(f"agent/{protocol}_{variant}") for variant in get_args(Prompt)}) == len(get_args(Prompt))


@variants
@protocols
def test_only_quitting_prompts_mention_quitting(protocol: str, variant: str) -> None:
    text = render(f"agent/{protocol}_{variant}", **VALUES)
    assert ("QUIT:" in text) == (variant in ("quit", "simple_quit"))


def test_the_worked_example_follows_its_own_format() -> None:
    text = render("agent/react_naive", **VALUES)
    example = text[text.index("User Input: Write") : text.index("# Tool specifications")]
    first, _, second = example.partition("\n\nObservation: ")
    call = read_turn(first, quits=False)
    assert isinstance(call, TextCall)
    assert call.discarded == ""
    assert set(call.arguments) == {"to", "subject", "body"}
    answer = read_turn(second.partition("\n")[2], quits=False)
    assert isinstance(answer, TextFinal)
    assert answer.answer.startswith("I emailed Lena")


@pytest.mark.parametrize("variant", ["quit", "simple_quit"])
def test_the_described_way_to_quit_is_the_one_that_is_recognized(variant: str) -> None:
    text = render(f"agent/react_{variant}", **VALUES)
    quit_line = text[text.index("\nQUIT:") :].strip().partition("\n")[0]
    assert isinstance(read_turn(f"Thought: no\n{quit_line}", quits=True), TextQuit)


@protocols
def test_the_tool_of_the_example_is_in_no_toolkit_of_the_benchmark(protocol: str) -> None:
    named = re.findall(r"`(\w+_\w+)`, whose", render(f"agent/{protocol}_naive", **VALUES))
    assert len(named) == 1
    assert named[0].partition("_")[0] not in known_toolkits(benchmark_folder())
