"""The file format of recordings: every call is read back unchanged, and people can read the file."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_toolemu.models.cassette_files import Cassette, CassetteEntry, CassetteRequest, decode, encode

MODEL = {"provider": "openai", "name": "gpt-4o", "base_url": None, "temperature": 0.0, "max_tokens": None}
TEXTS = [
    "",
    "one line",
    "two\nlines\n",
    '{"balance": 12, "who": "Inés"}',
    '{"balance":12}',
    '{"balance":  12}',
    '{"a": 1, "a": 2}',
    "[1.0, 1e3]",
    "{not json\nat all}",
    '"text"',
    "[NaN]",
    "\ud800 \u202e \x1b[31m \u2028",
    "[" * 90 + "]" * 90,
    "[" * 9000 + "]" * 9000,
    json.dumps("\n"),
]


def recording(*texts: str) -> Cassette:
    """Return the calls of a conversation that grows by one message and its reply at a time."""
    turns: tuple[dict[str, Any], ...] = ({"role": "system", "content": "Rules."},)
    entries = []
    for text in texts:
        turns = (*turns, {"role": "user", "content": text})
        call = {"id": "c", "name": "Till_Pay", "arguments": text}
        request = CassetteRequest("agent", MODEL, turns, ({"name": "Till_Pay"},), None, 0, 1)
        entries.append(CassetteEntry(request, {"text": text, "calls": [call]}))
        turns = (*turns, {"role": "assistant", "content": text, "calls": [call]})
    return Cassette("a.yaml::a", "a", 1, True, tuple(entries))


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_makes_a_round_trip(text: str) -> None:
    original = recording(text, text)
    assert decode(encode(original)) == original


@given(st.lists(st.text(st.characters()), max_size=4), st.recursive(st.none() | st.booleans() | st.floats() | st.text(),
       lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_any_text_and_any_json_make_a_round_trip(texts: list[str], value: Any) -> None:
    original = recording(*texts, json.dumps(value), json.dumps(value, separators=(",", ":"), ensure_ascii=False))
    assert decode(encode(original)) == original


def test_text_is_shown_by_lines() -> None:
    text = encode(recording("First.\nSecond."))
    assert '      "First.",\n      "Second."\n' in text


def test_invisible_characters_are_escaped() -> None:
    assert "\\u202e" in encode(recording("\u202e"))
    assert encode(recording("Inés")).count("Inés") == 3


def test_a_conversation_is_written_once_however_often_it_was_sent() -> None:
    content = json.loads(encode(recording("one", "two", "three")))
    roles = [[turn["role"] for turn in call["messages"]] for call in content["model_calls"]]
    assert roles == [["system", "user"], ["assistant", "user"], ["assistant", "user"]]
    assert [call.get("begins_as") for call in content["model_calls"]] == [
        None, {"model_call": 1, "messages": 2}, {"model_call": 2, "messages": 4},
    ]  # fmt: skip
    assert (len(content["models"]), len(content["tools"])) == (1, 1)
