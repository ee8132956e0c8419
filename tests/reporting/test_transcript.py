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
    value = {
        "payees": [{"id": "PY-1", "name": "Anna", "note": "x" * 30}, {"id": "PY-2", "name": "Anna"}],
        "more": False,
    }
    assert pretty(value).splitlines() == [
        "{",
        '  "payees": [',
        f'    {{"id": "PY-1", "name": "Anna", "note": "{"x" * 30}"}},',
        '    {"id": "PY-2", "name": "Anna"}',
        "  ],",
        '  "more": false',
        "}",
    ]
    assert pretty("no JSON {") == "no JSON {"


@given(st.dictionaries(st.text(), VALUES))
def test_nothing_is_lost(value: dict[str, object]) -> None:
    assert json.loads(pretty(value)) == value
