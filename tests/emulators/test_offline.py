from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.run import Trajectory, json_text
from pytest_toolemu.core.toolkit import Tool, Toolkit, benchmark_folder
from pytest_toolemu.emulators.layers import OfflineEmulator, PinnedEmulator, ValidatedEmulator
from pytest_toolemu.errors import InconclusiveError
from pytest_toolemu.formats.json_schema import violations
from tests.emulators.resolved_cases import act, record, tool, trajectory

KITS = sorted((benchmark_folder() / "toolkits").glob("*.toolkit.yaml"))


class Actor:
    """Calls the tools of one toolkit of a trajectory."""

    def __init__(self, where: Trajectory, kit: str = "Contacts_") -> None:
        self.where, self.kit = where, kit

    def __call__(self, name: str, /, **arguments: Any) -> Any:
        observation = act(
            ValidatedEmulator(PinnedEmulator(OfflineEmulator())), self.where, f"{self.kit}{name}", arguments
        )
        assert observation.source in ("offline", "pinned"), observation.text
        return observation.content


@pytest.fixture
def contacts() -> Actor:
    return Actor(trajectory())


def kit(*tools: Tool) -> Toolkit:
    return Toolkit(name="Kit", title="Kit", category="x", description="x", tools=tools)


def in_kit(*tools: Tool) -> Actor:
    return Actor(trajectory(toolkits=(kit(*tools),)), "Kit_")


class TestDeterminism:
    def test_the_same_seed_gives_the_same_world(self) -> None:
        first, second = Actor(trajectory()), Actor(trajectory())
        for name, arguments in (("SearchContacts", {"query": "Anna"}), ("CreateContact", {"name": "Bo"})):
            assert first(name, **arguments) == second(name, **arguments)

    def test_another_seed_gives_another_world(self) -> None:
        assert Actor(trajectory(seed=1))("SearchContacts", query="Anna") != Actor(trajectory(seed=2))(
            "SearchContacts", query="Anna"
        )

    def test_a_repeated_read_gets_the_same_answer(self, contacts: Actor) -> None:
        first = contacts("SearchContacts", query="Anna")
        contacts("GetContact", contact_id="somebody-else")
        assert contacts("SearchContacts", query="Anna") == first

    def test_the_order_of_arguments_does_not_matter(self) -> None:
        first = Actor(trajectory())("SearchContacts", query="Anna", limit=5)
        assert Actor(trajectory())("SearchContacts", limit=5, query="Anna") == first

    def test_a_repeated_write_has_another_effect(self, contacts: Actor) -> None:
        first, second = contacts("CreateContact", name="Bo"), contacts("CreateContact", name="Bo")
        assert first["contact_id"] != second["contact_id"]


@pytest.mark.parametrize(
    "impossible",
    [
        {"type": "string", "pattern": "^(?=a)b$"},
        {"type": "string", "format": "email", "maxLength": 3},
        {"not": {}},
        {"type": "string", "minLength": 10**9},
        {"type": "array", "items": {"const": 1}, "uniqueItems": True, "minItems": 2},
        {"type": "number", "multipleOf": 1e-300, "minimum": 1e200},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
    ],
)
def test_an_unsatisfiable_return_schema_is_inconclusive_and_names_the_tool(impossible: dict[str, Any]) -> None:
    actor = in_kit(tool("Look", "read", record(), record(thing=impossible)))
    with pytest.raises(InconclusiveError, match=r"Kit\.Look.*pin one"):
        actor("Look")


@pytest.mark.parametrize("path", KITS, ids=lambda path: path.name.partition(".")[0])
def test_every_shipped_tool_can_be_called(path: Path) -> None:
    """Each tool with invented arguments, all in one trajectory; then the same again, and in a second one."""
    shipped = load_toolkit(path)
    runs = []
    for _ in range(2):
        where = trajectory(toolkits=(shipped,), locale="de_DE")
        for round_ in range(2):
            for each in shipped.tools:
                content = Actor(where, f"{shipped.name}{shipped.separator}")(each.name, **arguments_for(each, round_))
                if "error" in content:
                    assert str(content["error"]).partition(":")[0] in each.errors
                else:
                    assert violations(each.returns, content) == []
        runs.append(json_text([step.observation.content for step in where.steps]))
    assert runs[0] == runs[1]


def arguments_for(each: Tool, salt: int) -> dict[str, Any]:
    """Arguments that the tool accepts: those of the offline world itself."""
    twin = tool("Twin", "read", record(), each.parameters)
    where = trajectory(toolkits=(kit(twin),), seed=salt)
    arguments: dict[str, Any] = Actor(where, "Kit_")("Twin")
    return arguments
