from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.core.case_rules import Pin
from pytest_toolemu.core.toolkit import Tool, Toolkit, benchmark_folder
from pytest_toolemu.core.toolkit_files import load_toolkit
from pytest_toolemu.core.trajectory import Trajectory, json_text
from pytest_toolemu.emulators.offline.emulator import OfflineEmulator
from pytest_toolemu.emulators.pinned import PinnedEmulator
from pytest_toolemu.emulators.validated import ValidatedEmulator
from pytest_toolemu.errors import InconclusiveError
from pytest_toolemu.formats.json_schema import violations
from tests.emulators.resolved_cases import TEXT, act, listed, record, tool, trajectory

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


class TestState:
    def test_created_things_are_found(self, contacts: Actor) -> None:
        new = contacts("CreateContact", name="Ottilie Brandt", note="Plays chess.")["contact_id"]
        search_result = contacts("SearchContacts", query="ottilie")
        assert [(c["contact_id"], c["name"], c["note"]) for c in search_result["contacts"]] == [
            (new, "Ottilie Brandt", "Plays chess.")
        ]
        assert search_result["total"] == 1
        assert contacts("GetContact", contact_id=new)["name"] == "Ottilie Brandt"
        assert new in contacts("ListContactIds")["contact_ids"]

    def test_things_that_were_found_can_be_read(self, contacts: Actor) -> None:
        for contact in contacts("SearchContacts", query="Anna")["contacts"]:
            assert contacts("GetContact", contact_id=contact["contact_id"]) == contact

    def test_a_thing_that_was_read_is_found_unchanged(self, contacts: Actor) -> None:
        contact = contacts("GetContact", contact_id="c-1")
        assert contacts("SearchContacts", query=contact["name"])["contacts"] == [contact]

    def test_an_updated_thing_shows_the_change(self, contacts: Actor) -> None:
        before = contacts("SearchContacts", query="Anna")["contacts"][0]
        contacts("UpdateContact", contact_id=before["contact_id"], note="Moved to Graz.")
        after = contacts("GetContact", contact_id=before["contact_id"])
        assert after == before | {"note": "Moved to Graz."}
        assert after in contacts("SearchContacts", query="Graz")["contacts"]

    def test_an_update_of_an_unknown_thing_is_remembered(self, contacts: Actor) -> None:
        contacts("UpdateContact", contact_id="c-77", name="Ines Sá")
        assert contacts("GetContact", contact_id="c-77")["name"] == "Ines Sá"

    def test_a_deleted_thing_no_longer_exists(self, contacts: Actor) -> None:
        contacts_before = contacts("SearchContacts", query="Anna")["contacts"]
        deleted_id = contacts_before[0]["contact_id"]
        assert contacts("DeleteContacts", contact_ids=[deleted_id]) == {"deleted": 1}
        assert contacts("SearchContacts", query="Anna")["contacts"] == contacts_before[1:]
        assert contacts("GetContact", contact_id=deleted_id) == {
            "error": f"NotFound: there is no contact with contact_id {deleted_id!r}"
        }
        assert contacts("UpdateContact", contact_id=deleted_id, name="Anna")["error"].startswith("NotFound: ")
        assert contacts("DeleteContacts", contact_ids=["c-5", deleted_id])["error"].startswith("NotFoundException: ")

    def test_deleted_things_are_not_generated_again(self, contacts: Actor) -> None:
        annas = contacts("SearchContacts", query="Anna")["contacts"]
        contacts("DeleteContacts", contact_ids=[contact["contact_id"] for contact in annas])
        assert contacts("SearchContacts", query="Anna") == {"contacts": [], "total": 0}
        assert contacts("ListContactIds")["contact_ids"] == []

    def test_an_irreversible_call_about_a_thing_leaves_it_as_it_was(self, contacts: Actor) -> None:
        before = contacts("GetContact", contact_id="c-1")
        contacts("NotifyContact", contact_id="c-1", text="Hello")
        assert contacts("GetContact", contact_id="c-1") == before

    def test_filters_select_by_any_value_of_a_list_and_all_selects_everything(self) -> None:
        parameters = record("title", title=TEXT, state=TEXT, tags=listed(TEXT))
        note = record(note_id=TEXT, title=TEXT, state=TEXT, tags=listed(TEXT))
        actor = in_kit(
            tool("CreateNote", "write", parameters, record(note_id=TEXT)),
            tool("ListNotes", "read", record("state", state=TEXT, tags=listed(TEXT)), record(notes=listed(note))),
        )
        actor("CreateNote", title="Kiln", state="open", tags=["clay", "fire"])
        actor("CreateNote", title="Boat", state="done", tags=["wood"])

        def titles(**filters: Any) -> list[str]:
            return [found["title"] for found in actor("ListNotes", **filters)["notes"]]

        assert titles(state="all") == ["Kiln", "Boat"]
        assert titles(state="all", tags=["wood", "stone"]) == ["Boat"]
        assert titles(state="open", tags=["fire"]) == ["Kiln"]

    def test_failed_calls_change_nothing(self) -> None:
        where = trajectory(Pin(tool="Contacts.DeleteContacts", error="NotFoundException: not that one"))
        contacts = Actor(where)
        before = contacts("GetContact", contact_id="c-1")
        contacts("DeleteContacts", contact_ids=["c-1"])
        assert contacts("GetContact", contact_id="c-1") == before

    def test_pinned_answers_are_part_of_the_world(self) -> None:
        anna = {"contact_id": "c-3", "name": "Anna Lind", "email": "anna@lind.example", "note": ""}
        where = trajectory(Pin(tool="Contacts.SearchContacts", returns={"contacts": [anna], "total": 1}))
        contacts = Actor(where)
        contacts("SearchContacts", query="Anna")
        assert contacts("GetContact", contact_id="c-3") == anna

    def test_a_limit_is_respected(self, contacts: Actor) -> None:
        for name in ("Bo Lind", "Bo Dahl", "Bo Ek"):
            contacts("CreateContact", name=name)
        assert len(contacts("SearchContacts", query="Bo", limit=2)["contacts"]) == 2
        assert len(contacts("SearchContacts", query="Bo")["contacts"]) == 3

    def test_settings_without_an_id_are_remembered(self) -> None:
        thermostat = Actor(trajectory(), "Thermostat")
        assert thermostat("SetTarget", target=21.5) == {"success": True}
        assert thermostat("ReadTarget")["target"] == 21.5

    def test_the_output_of_one_command_is_not_that_of_the_next(self) -> None:
        run = in_kit(tool("Run", "irreversible", record(command=TEXT), record(output=TEXT)))
        assert run("Run", command="ls")["output"] != run("Run", command="pwd")["output"]

    def test_toolkits_have_separate_states(self) -> None:
        where = trajectory()
        Actor(where, "Thermostat")("SetTarget", target=21.5)
        Actor(where)("CreateContact", name="Bo")
        assert Actor(where, "Thermostat")("ReadTarget")["target"] == 21.5


class TestOtherShapes:
    def test_a_status_that_lasts_is_reflected(self) -> None:
        states = {"enum": ["open", "shipped", "cancelled"]}
        act_in = in_kit(
            tool("GetOrder", "read", record(order_id=TEXT), record(order_id=TEXT, status=states)),
            tool("CancelOrder", "write", record(order_id=TEXT), record(order_id=TEXT, status={"const": "cancelled"})),
        )
        assert act_in("GetOrder", order_id="o-1")["status"] == "open"
        assert act_in("CancelOrder", order_id="o-1") == {"order_id": "o-1", "status": "cancelled"}
        assert act_in("GetOrder", order_id="o-1")["status"] == "cancelled"

    def test_things_without_ids_are_deleted_by_name(self) -> None:
        act_in = in_kit(
            tool("ListLabels", "read", record(), record(labels=listed(record(name=TEXT)))),
            tool("CreateLabel", "write", record(name=TEXT), record(success={"type": "boolean"})),
            tool("DeleteLabel", "destructive", record(name=TEXT), record(success={"type": "boolean"})),
        )
        act_in("CreateLabel", name="Bills")
        act_in("CreateLabel", name="Travel")
        assert act_in("ListLabels")["labels"] == [{"name": "Bills"}, {"name": "Travel"}]
        act_in("DeleteLabel", name="Bills")
        assert act_in("ListLabels")["labels"] == [{"name": "Travel"}]

    def test_lines_that_share_an_order_id_stay_separate(self) -> None:
        line = record(order_id=TEXT, product=TEXT)
        act_in = in_kit(
            tool(
                "GetLines", "read", record(order_id=TEXT), record(lines=listed(line) | {"minItems": 3, "maxItems": 3})
            ),
            tool("ListLines", "read", record(), record(lines=listed(line))),
        )
        lines = act_in("GetLines", order_id="o-1")["lines"]
        assert [line["order_id"] for line in lines] == ["o-1"] * 3
        assert act_in("GetLines", order_id="o-1")["lines"] == lines

    def test_deleting_a_part_keeps_the_whole(self) -> None:
        ids = record(group_id=TEXT, member_id=TEXT)
        act_in = in_kit(
            tool("RemoveMember", "destructive", ids, record(success={"type": "boolean"})),
            tool("GetGroup", "read", record(group_id=TEXT), record(group_id=TEXT, name=TEXT), NotFound="x"),
            tool("GetMember", "read", record(member_id=TEXT), record(member_id=TEXT, name=TEXT), NotFound="x"),
        )
        act_in("RemoveMember", group_id="g-1", member_id="m-1")
        assert act_in("GetGroup", group_id="g-1")["group_id"] == "g-1"
        assert act_in("GetMember", member_id="m-1")["error"].startswith("NotFound")

    def test_objects_nested_in_a_result_are_remembered(self) -> None:
        event = record(event_id=TEXT, title=TEXT)
        act_in = in_kit(
            tool("CreateEvent", "write", record(title=TEXT), record(event=event)),
            tool("GetEvent", "read", record(event_id=TEXT), record(event=event)),
        )
        new = act_in("CreateEvent", title="Dentist")["event"]
        assert new["title"] == "Dentist"
        assert act_in("GetEvent", event_id=new["event_id"])["event"] == new

    @pytest.mark.parametrize("items", [{"type": "object"}, {}])
    def test_objects_without_declared_members_are_remembered(self, items: dict[str, Any]) -> None:
        act_in = in_kit(
            tool("AddPayee", "write", record(name=TEXT), record(payee_id=TEXT)),
            tool("ListPayees", "read", record(), record(payees=listed(items))),
        )
        new = act_in("AddPayee", name="Ines Sá")["payee_id"]
        assert act_in("ListPayees")["payees"] == [{"payee_id": new, "name": "Ines Sá"}]

    def test_numeric_ids_keep_their_type(self) -> None:
        number = {"type": "integer", "minimum": 1}
        act_in = in_kit(
            tool("UpdateTask", "write", record("id", id=number, title=TEXT), record(id=number)),
            tool("ListTasks", "read", record(), record(tasks=listed(record(id=number, title=TEXT)))),
        )
        act_in("UpdateTask", id=41, title="Water the plants")
        assert act_in("ListTasks")["tasks"] == [{"id": 41, "title": "Water the plants"}]


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


def test_remembered_values_never_violate_the_specification() -> None:
    actor = in_kit(
        tool("WriteNote", "write", record(note_id=TEXT, size=TEXT), record(success={"type": "boolean"})),
        tool("ReadNote", "read", record(note_id=TEXT), record(note_id=TEXT, size={"type": "integer"})),
    )
    actor("WriteNote", note_id="n-1", size="large")
    assert isinstance(actor("ReadNote", note_id="n-1")["size"], int)


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
