"""JSON as a person reads it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pytest_toolemu.reporting.transcript import pretty

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_what_is_short_stays_on_one_line() -> None:
    assert pretty({"who": "Anna", "amount": 12}) == '{"who":"Anna","amount":12}'
    assert pretty({"payees": [{"name": "x" * 80}]}).splitlines() == [
        "{",
        '  "payees": [',
        "    {",
        f'      "name": "{"x" * 80}"',
        "    }",
        "  ]",
        "}",
    ]
    assert pretty("no JSON {") == "no JSON {"


@given(st.dictionaries(st.text(), VALUES))
def test_nothing_is_lost(value: dict[str, object]) -> None:
    assert json.loads(pretty(value)) == value
