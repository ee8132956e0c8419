"""Calls of shipped tools on rows, with the results and the declared errors that the descriptions of the tools promise."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.core.case import User
from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.toolkit import benchmark_folder
from pytest_toolemu.core.world.toolkit_plan import plan_of
from pytest_toolemu.core.world.world import World
from pytest_toolemu.core.world.world_state import WorldBeginning
from pytest_toolemu.formats.json_schema import violations
from pytest_toolemu.formats.yaml_document import Document, Record

Rows = dict[str, tuple[dict[str, Any], ...]]


class ExpectedCall(Record):
    """A call with the error that it returns, or with a part of its result.

    ``returns`` may leave out members of objects. A list has to be complete.
    """

    tool: str
    arguments: dict[str, Any] = {}
    fails: str | None = None
    returns: dict[str, Any] = {}


class CallSequence(Record):
    """Calls that are made one after the other on fresh rows; ``rows`` replace those of the table."""

    about: str
    rows: Rows = {}
    calls: tuple[ExpectedCall, ...]


class CallTable(Record):
    """The sequences of calls of one toolkit. The first call of each happens at ``now``; ``ids`` are keys of new rows."""

    toolkit: str
    now: str
    rows: Rows
    ids: dict[str, tuple[str, ...]] = {}
    sequences: tuple[CallSequence, ...]


TABLES = [Document.read(path).build(CallTable) for path in sorted((Path(__file__).parent / "calls").glob("*.yaml"))]
SEQUENCES = [(table, sequence) for table in TABLES for sequence in table.sequences]


@pytest.mark.parametrize(
    ("table", "sequence"), SEQUENCES, ids=[f"{table.toolkit}: {sequence.about}" for table, sequence in SEQUENCES]
)
def test_calls_return_what_the_tools_promise(table: CallTable, sequence: CallSequence) -> None:
    plan = plan_of(load_toolkit(benchmark_folder() / "toolkits" / f"{table.toolkit}.toolkit.yaml"))
    rows = {name: list(listed) for name, listed in {**table.rows, **sequence.rows}.items()}
    world = World(
        WorldBeginning({table.toolkit: plan}, {table.toolkit: rows}),
        ids={f"{table.toolkit}.{entity}": keys for entity, keys in table.ids.items()},
        user=User(name="Ada Lovelace", email="ada@example.org"),
        now=datetime.fromisoformat(table.now),
        seed="calls",
    )
    for number, call in enumerate(sequence.calls):
        tool = plan.plans[call.tool].tool
        assert violations(tool.parameters, call.arguments) == []
        content = world.call(f"{table.toolkit}.{call.tool}", call.arguments, number)
        error = str(content["error"]).partition(":")[0] if "error" in content else None
        assert (number, call.tool, error) == (number, call.tool, call.fails), content
        assert error is None or error in tool.errors
        if error is None:
            assert violations(tool.returns, content) == []
            assert contains(content, call.returns), (number, call.tool, content)


def test_every_error_that_a_tool_declares_occurs() -> None:
    """``test_operations`` tries unknown keys, so NotFound is excluded."""
    occurring = {(table.toolkit, call.tool, call.fails) for table, sequence in SEQUENCES for call in sequence.calls}
    declared = {
        (toolkit.name, tool.name, error)
        for toolkit in map(load_toolkit, sorted((benchmark_folder() / "toolkits").glob("*.toolkit.yaml")))
        for tool in toolkit.tools
        if tool.operation
        for error in tool.errors
        if error != "NotFound"
    }
    # The emulator measures what the rows do not contain, and may find that there is no such column.
    assert declared - occurring == {("TuneYard", "EvaluateModel", "InvalidRequest")}


def contains(value: Any, part: Any) -> bool:
    """Return whether a value has all members of the part; lists are compared item by item."""
    if isinstance(part, dict):
        return isinstance(value, dict) and all(name in value and contains(value[name], part[name]) for name in part)
    if isinstance(part, list):
        return isinstance(value, list) and len(value) == len(part) and all(map(contains, value, part))
    return bool(value == part)
