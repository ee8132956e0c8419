from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_toolemu.agents.model_agents import TextCall, TextFinal, TextProblem, TextQuit, read_turn

NAME = st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,10}_[A-Za-z][A-Za-z0-9]{0,10}", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(TEXT, VALUE, max_size=4)
# Pieces of valid and invalid turns.
PIECE = st.sampled_from(
    [
        "Thought: ",
        "Action:",
        "Action Input:",
        "Observation:",
        "Final Answer:",
        "QUIT: ",
        "\n",
        " ",
        "**",
        "```json",
        "{",
        "}",
        '"',
        "\\",
        "#",
        "`",
        "x_y",
        '{"a": "b"}',
        '{"a": NaN}',
        '{"a":' * 20,
        "<think>",
        "</think>",
    ]
)


@given(st.text(max_size=200) | st.lists(PIECE, max_size=25).map("".join), st.booleans())
def test_any_text_is_parsed_without_an_error_and_without_loss(text: str, quits: bool) -> None:
    turn = read_turn(text, quits=quits)
    assert quits or not isinstance(turn, TextQuit)
    if isinstance(turn, TextCall | TextProblem):
        assert text.strip().startswith(turn.kept)
        assert text.strip().endswith(turn.discarded)
        assert "".join((turn.kept + turn.discarded).split()) == "".join(text.split())


@given(NAME, ARGUMENTS, st.sampled_from([None, 2]), st.booleans())
def test_a_rendered_call_is_parsed_whatever_its_arguments_contain(
    name: str, arguments: dict[str, Any], indent: int | None, quits: bool
) -> None:
    json_text = json.dumps(arguments, ensure_ascii=False, indent=indent)
    text = f"Thought: now\nAction: {name}\nAction Input: {json_text}"
    assert read_turn(text, quits=quits) == TextCall(name, arguments, text, "")


@given(NAME, ARGUMENTS, st.lists(PIECE.filter(lambda p: p != "</think>"), min_size=1).map("".join), st.booleans())
def test_text_after_the_first_call_is_discarded(name: str, arguments: dict[str, Any], tail: str, quits: bool) -> None:
    call = f"Action: {name}\nAction Input: {json.dumps(arguments)}"
    assert read_turn(f"{call}\n{tail}", quits=quits) == TextCall(name, arguments, call, tail.strip())


@pytest.mark.parametrize(
    "text",
    [
        'Action: A_B\nAction Input: {"x": 1}',
        'Action:A_B\nAction Input:{"x":1}',
        '**Action:** A_B\n**Action Input:** {"x": 1}',
        '**Action**: A_B\n**Action Input**: {"x": 1}',
        '### Action: `A_B`\n### Action Input:\n\n{"x": 1}',
        'Thought: t\n\nAction:\nA_B\n\n\nAction Input:\n```json\n{"x": 1}\n```',
        '  action: A_B\r\n  action input: {"x": 1}',
        '```\nAction: "A_B"\nActionInput: `{"x": 1}`\n```',
        'Action: to be found\nAction: A_B\nAction Input: {"x": 1}',
        'Action Input: {}\nAction: A_B\nAction Input: { "x" :\n1 }',
    ],
)
def test_a_call_is_accepted_in_several_forms(text: str) -> None:
    turn = read_turn(text, quits=True)
    assert isinstance(turn, TextCall)
    assert (turn.name, turn.arguments) == ("A_B", {"x": 1})


def test_the_closing_fence_belongs_to_the_call() -> None:
    call = 'Action: A_B\nAction Input: ```json\n{"x": 1}\n```'
    assert read_turn(f"{call}\nObservation: made up", quits=False) == TextCall(
        "A_B", {"x": 1}, call, "Observation: made up"
    )


def test_only_the_first_of_several_calls_is_made() -> None:
    first, second = ('Action: A_B\nAction Input: {"n": 1}', 'Action: A_B\nAction Input: {"n": 2}')
    assert read_turn(f"{first}\n{second}", quits=False) == TextCall("A_B", {"n": 1}, first, second)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Final Answer: Yes.", "Yes."),
        ("Thought: enough\n**Final Answer:** Yes.\n\nBest wishes", "Yes.\n\nBest wishes"),
        ("## Final Answer:\nYes.", "Yes."),
        ('Final Answer: Yes.\nAction: A_B\nAction Input: {"x": 1}', 'Yes.\nAction: A_B\nAction Input: {"x": 1}'),
        ("Action: None\nFinal Answer: Yes.", "Yes."),
        ("QUIT: not here\nFinal Answer: Yes.", "Yes."),
        ("Final Answer:", ""),
    ],
)
def test_text_after_the_answer_label_is_the_final_answer(text: str, answer: str) -> None:
    assert read_turn(text, quits=False) == TextFinal(answer)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("I am thinking about the Final Answer: soon. I may QUIT: or not.", "neither a complete action nor"),
        ("Quit: in lower case", "neither a complete action nor"),
        ("- Final Answer: the last point of a plan", "neither a complete action nor"),
        ('Action: A_B\nThought: hm\nAction Input: {"x": 1}', "neither a complete action nor"),
        ("Action: A_B\nObservation: done", "has an observation"),
        ('Action:\nAction Input: {"x": 1}', "not the name of one tool"),
        ('Action: A_B\nor C_D\nAction Input: {"x": 1}', "not the name of one tool"),
        ("Action: A_B\nAction Input: None\nFinal Answer: I called it.", "not a JSON object"),
        ('Action: A_B\nAction Input: ["x"]', "not a JSON object"),
        ('Action: A_B\nAction Input: {"x": 1', "not a valid JSON object: Expecting"),
        ('Action: A_B\nAction Input: {"x": True}', "not a valid JSON object: Expecting value"),
        ('Action: A_B\nAction Input: {"x": NaN}', "NaN is not valid JSON"),
        ('Action: A_B\nAction Input: {"x": "\\ud800"}', "surrogates not allowed"),
        ("Action: A_B\nAction Input: " + '{"x":' * 100_000, "recursion"),
        ('Action: A_B\nAction Input: {"x": "y",}\nQUIT: no\nFinal Answer: done', "not a valid JSON object"),
        ('<think>Action: A_B\nAction Input: {"x": 1}', "neither a complete action nor"),
        ("", "neither a complete action nor"),
    ],
)
def test_an_unusable_turn_is_reported_with_its_problem(text: str, problem: str) -> None:
    turn = read_turn(text, quits=True)
    assert isinstance(turn, TextProblem)
    assert problem in turn.problem


def test_after_an_invalid_call_everything_from_the_first_observation_on_is_discarded() -> None:
    broken, discarded_text = "Action: A_B\nAction Input: {x: 1}\nThought: hm", "Observation: done\nFinal Answer: done"
    turn = read_turn(f"{broken}\n{discarded_text}", quits=False)
    assert isinstance(turn, TextProblem)
    assert (turn.kept, turn.discarded) == (broken, discarded_text)


def test_strings_are_not_repaired() -> None:
    text = 'Action: A_B\nAction Input: {"path": "C:\\\\True\\\\n", "say": "True // `None`", "more": "two\nlines"}'
    turn = read_turn(text, quits=False)
    assert isinstance(turn, TextCall)
    assert turn.arguments == {"path": "C:\\True\\n", "say": "True // `None`", "more": "two\nlines"}


@pytest.mark.parametrize("thinking", ["<think>Action: A_B\nAction Input: {}</think>", "Final Answer: hm\n</think>\n"])
def test_drafts_in_a_local_models_reasoning_do_not_count(thinking: str) -> None:
    assert read_turn(f"{thinking}\nFinal Answer: Yes.", quits=False) == TextFinal("Yes.")


def test_the_reason_for_quitting_begins_after_its_label() -> None:
    assert read_turn("Thought: risky\n**QUIT:** Too risky.\nReally.", quits=True) == TextQuit("Too risky.\nReally.")


def test_long_runs_of_blanks_and_marks_take_linear_time() -> None:
    for text in ("Action:" + " " * 200_000, "\n" * 200_000, "*" * 200_000 + "Action:", "Action: " + "`" * 200_000):
        assert isinstance(read_turn(text, quits=True), TextProblem)
