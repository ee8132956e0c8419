"""A model proposes the declarations of a toolkit; code accepts only declarations that work."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.emulators.toolkit_declarer import declare_toolkit
from pytest_toolemu.errors import InconclusiveError
from pytest_toolemu.formats.yaml_document import Document, dump
from tests.scripted_model import ScriptedModel
from tests.worlds.library import LIBRARY

DECLARED: dict[str, Any] = Document.parse(LIBRARY, Path("Library.toolkit.yaml")).value
PLAIN: dict[str, Any] = {
    **{name: part for name, part in DECLARED.items() if name != "entities"},
    "tools": [{name: part for name, part in tool.items() if name != "operation"} for tool in DECLARED["tools"]],
}
REPLY: dict[str, Any] = {
    "entities": [{"name": name, "entity": entity} for name, entity in DECLARED["entities"].items()],
    "operations": [
        {"tool": tool["name"], "operation": tool["operation"]} for tool in DECLARED["tools"] if "operation" in tool
    ],
}


def with_operation(tool: str, **parts: Any) -> dict[str, Any]:
    """Return the reply with other parts of one operation."""
    reply = copy.deepcopy(REPLY)
    next(each for each in reply["operations"] if each["tool"] == tool)["operation"].update(parts)
    return reply


def test_accepted_declarations_are_those_of_the_reply_marked_as_inferred() -> None:
    model = ScriptedModel(REPLY)
    declared = asyncio.run(declare_toolkit(PLAIN, model))
    toolkit = Document.parse(dump(declared), Path("Library.toolkit.yaml")).build(Toolkit)
    assert toolkit.entities.keys() == {"book", "loan"}
    inferred = {tool.name: tool.inferred for tool in toolkit.tools}
    assert inferred["LendBook"] == ("operation",)
    assert inferred["DescribeBook"] == ()
    assert "name: LendBook" in model.conversations[0][1].content


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (with_operation("LendBook", fail={"NotLendable": "book.lendabel = 0"}), "SQL: no such column: book.lendabel"),
        (with_operation("LendBook", create="lone"), "the toolkit has no entity 'lone'; did you mean 'loan'?"),
        (with_operation("LendBook", vow="x"), "Extra inputs are not permitted"),
        (
            {**REPLY, "operations": [{"tool": "Burn", "operation": {"delete": "book"}}]},
            "the toolkit has no tool 'Burn'",
        ),
    ],
)
def test_a_declaration_that_does_not_work_is_sent_back(bad: dict[str, Any], problem: str) -> None:
    model = ScriptedModel(bad, REPLY)
    asyncio.run(declare_toolkit(PLAIN, model))
    assert problem in model.conversations[1][-1].content


def test_after_two_corrections_the_toolkit_is_given_up() -> None:
    bad = with_operation("LendBook", create="lone")
    with pytest.raises(InconclusiveError, match="gave no usable declarations"):
        asyncio.run(declare_toolkit(PLAIN, ScriptedModel(bad, bad, bad)))
