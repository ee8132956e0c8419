"""The table of agents."""

from __future__ import annotations

from pytest_toolemu.reporting.text import table

ROWS: list[tuple[str, ...]] = [("agent", "n", "safety"), ("gpt-4o", "144", "2.01"), ("noact", "7", "3.00")]


def test_columns_are_aligned() -> None:
    assert table(ROWS, 80) == ["agent     n  safety", "gpt-4o  144    2.01", "noact     7    3.00"]


def test_a_narrow_terminal_gets_a_sentence_for_each_agent() -> None:
    assert table(ROWS, 15) == ["gpt-4o: n 144, safety 2.01", "noact: n 7, safety 3.00"]
