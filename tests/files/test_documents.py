"""YAML documents: plain values, or a clear error message with a position."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.yaml_document import MAX_BYTES, Document, closest, dump, format_location, read_text, show

PATH = Path("some.toolemu.yaml")


def error_message(text: str) -> str:
    with pytest.raises(DocumentError) as caught:
        Document.parse(text, PATH)
    return str(caught.value)


def test_values_are_read_as_yaml_1_2_does() -> None:
    text = "a: 1\nb: -2.5\nc: 1e3\nd: true\ne: null\nf: text\ng: [x, {h: y}]\ni: '007'\nj: |\n  two\n  lines\n"
    assert Document.parse(text, PATH).value == {
        "a": 1,
        "b": -2.5,
        "c": 1000.0,
        "d": True,
        "e": None,
        "f": "text",
        "g": ["x", {"h": "y"}],
        "i": "007",
        "j": "two\nlines\n",
    }


@pytest.mark.parametrize(
    ("scalar", "remedy"),
    [
        ("no", "write false for a truth value, or put it in quotes"),
        ("Yes", "write true for a truth value, or put it in quotes"),
        ("off", "write false for a truth value, or put it in quotes"),
        ("1:30", "put it in quotes if it is text"),
        ("012", "put it in quotes if it is text"),
        ("0x1f", "put it in quotes if it is text"),
        ("1_000", "put it in quotes if it is text"),
        ("2026-01-02", "put it in quotes if it is text"),
        ("2026-01-02T03:04:05Z", "put it in quotes if it is text"),
        (".inf", "put it in quotes if it is text"),
    ],
)
def test_scalars_that_yaml_readers_interpret_differently_are_errors(scalar: str, remedy: str) -> None:
    expected = f"some.toolemu.yaml:2:6: YAML readers interpret {scalar!r} differently; {remedy}"
    assert error_message(f"a: b\nkey: {scalar}\n") == expected
    assert Document.parse(f"key: '{scalar}'", PATH).value == {"key": scalar}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "some.toolemu.yaml:1:1: the file is empty; add keys and values"),
        ("a: 1\na: 2\n", "some.toolemu.yaml:2:1: the key 'a' occurs twice in this mapping"),
        ("a: 1\n---\nb: 2\n", "some.toolemu.yaml:2:1: a second document starts here; put it in a file of its own"),
        ("a: !!int x\n", "some.toolemu.yaml:1:4: the tag 'tag:yaml.org,2002:int' is not supported; remove it"),
        ("? [a]\n: b\n", "some.toolemu.yaml:1:3: a key must be plain text"),
        ("a: [1,\n", "some.toolemu.yaml:2:1: YAML syntax: did not find expected node content; write a value here, or close the list or mapping that is open"),
        ("no: 1\n", "some.toolemu.yaml:1:1: YAML readers interpret 'no' differently; "
                    "write false for a truth value, or put it in quotes"),
        ("a: 12345678901234567890\n", 'some.toolemu.yaml:1:4: the number "12345678901234567890" is too large; '
                                      "put it in quotes if it is text"),
        ("a: 1e999\n", 'some.toolemu.yaml:1:4: the number "1e999" is too large; put it in quotes if it is text'),
    ],
)  # fmt: skip
def test_invalid_syntax_is_reported_with_its_position(text: str, expected: str) -> None:
    assert error_message(text) == expected


def test_an_alias_bomb_is_refused_at_its_first_anchor() -> None:
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    expected = "anchors and aliases (&name, *name) are not supported; repeat the value"
    assert error_message(bomb) == f"some.toolemu.yaml:1:4: {expected}"


def test_deep_nesting_is_refused() -> None:
    assert error_message("[" * 100) == "some.toolemu.yaml:1:61: nested deeper than 60 levels"
    assert "nest" in error_message("[" * 100_000)  # libyaml may stop first


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.toolemu.yaml"
    with path.open("wb") as file:
        file.truncate(20_000_000)
    with pytest.raises(DocumentError, match=rf"the file has 20,000,000 bytes; at most {MAX_BYTES:,} are read"):
        read_text(path)


def test_a_byte_that_is_not_utf8_is_reported_with_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "latin.toolemu.yaml"
    path.write_bytes(b"title: x\nuser: caf\xe9\n")
    with pytest.raises(DocumentError) as caught:
        Document.read(path)
    assert str(caught.value) == f"{path}:2:10: byte 0xe9 is not UTF-8; save the file as UTF-8"


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="cannot be read: No such file or directory"):
        Document.read(tmp_path / "gone.toolemu.yaml")


def test_a_missing_value_has_the_position_of_its_parent() -> None:
    document = Document.parse("a:\n  - x: 1\n    y: 2\n", PATH)
    assert document.position(("a", 0, "y")) == (3, 8)
    assert document.position(("a", 0, "missing")) == (2, 5)
    assert document.position(("nowhere",)) == (1, 1)


def test_the_closest_name_is_suggested_or_all_names_are_listed() -> None:
    assert closest("colour", ["color", "size"]) == "; did you mean 'color'?"
    assert closest("zzz", ["b", "a"]) == "; known: a, b"
    assert closest("x", []) == ""
    assert format_location(("checks", 0, "never", "tool")) == "checks[0].never.tool"
    assert show("x" * 200, 10) == '"xxxxxxxx…'


# JSON writes characters beyond the basic plane as surrogate pairs, which YAML has no escape for.
TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | TEXT
    | st.floats(allow_nan=False, allow_infinity=False, width=32),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_json_has_the_same_value_as_yaml(value: Any) -> None:
    """JSON is YAML: any JSON text has the same value as YAML, with any characters."""
    import json

    text = json.dumps(value)  # ASCII: YAML forbids some raw control characters that JSON only escapes
    parsed = Document.parse(text, PATH).value
    assert parsed == value or (isinstance(value, float) and math.isclose(parsed, value))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_positions(text: str) -> None:
    try:
        Document.parse(text, PATH)
    except DocumentError as error:
        assert error.problems
        for line, column, message in error.problems:
            assert line >= 1
            assert column >= 1
            assert message


@given(JSON)
def test_unambiguous_yaml_has_the_same_value_as_in_pyyaml(value: Any) -> None:
    text = yaml.safe_dump(value, default_style='"')  # every scalar is quoted, and tags state the type
    try:
        parsed = Document.parse(text, PATH).value
    except DocumentError as error:
        assert "tag" in str(error)
    else:
        assert parsed == value


@pytest.mark.parametrize("text", ["-.nan", "+.NaN", ".iNF", "tRue", "nULL", "yEs", "0XfF", "2020-01-02"])
def test_a_dumped_text_that_looks_like_another_value_is_read_as_text(text: str) -> None:
    value = {text: text, "list": [text, True, None, 1.5]}
    assert Document.parse(dump(value), Path("x.yaml")).value == value


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\u2029"])
def test_a_dumped_text_keeps_characters_that_yaml_takes_for_line_breaks(separator: str) -> None:
    value = {f"a{separator}b": f"{separator}c"}
    assert Document.parse(dump(value), Path("x.yaml")).value == value
