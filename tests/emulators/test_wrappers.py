from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_toolemu.core.case_rules import Pin
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.emulators.layers import ConsistentEmulator, OfflineEmulator, PinnedEmulator, ValidatedEmulator
from pytest_toolemu.errors import InconclusiveError
from tests.emulators.resolved_cases import TEXT, Fixed, act, record, tool, trajectory, unreachable

ANNA = {"contact_id": "c-81f", "name": "Anna Keller", "email": "anna@keller.example", "note": ""}


def rejected(name: str, arguments: Any) -> str:
    observation = act(ValidatedEmulator(unreachable), trajectory(), name, arguments)
    assert observation.source == "rejected"
    assert observation.is_error
    assert json.loads(observation.text) == observation.content
    return str(observation.content["error"])


class TestValidatedEmulator:
    @pytest.mark.parametrize(
        ("tool_name", "named"),
        [
            ("Contacts_GetContacts", "Contacts_GetContact"),
            ("contacts_getcontact", "Contacts_GetContact"),
            ("Contacts.GetContact", "Contacts_GetContact"),
            ("GetContact", "Contacts_GetContact"),
            ("SetTarget", "ThermostatSetTarget"),
        ],
    )
    def test_an_unknown_tool_names_the_closest(self, tool_name: str, named: str) -> None:
        error = rejected(tool_name, {})
        assert error.startswith(f'InvalidRequest: there is no tool "{tool_name}"; the closest are ')
        assert named in error

    @pytest.mark.parametrize("tool_name", ["", "_", "Zzz", "x" * 100_000, 'quo"te\n'])
    def test_an_unknown_tool_without_similar_names_lists_all(self, tool_name: str) -> None:
        error = rejected(tool_name, {})
        assert "the tools are Contacts_SearchContacts, " in error
        assert "ThermostatReadTarget" in error
        assert len(error) < 500

    @pytest.mark.parametrize("arguments", ["not json", "", [], None, 3, True, [{"contact_id": "c"}]])
    def test_arguments_must_be_an_object(self, arguments: Any) -> None:
        error = rejected("Contacts_GetContact", arguments)
        assert error.startswith("InvalidRequest: the arguments must be one JSON object, and ")

    def test_all_violations_are_listed(self) -> None:
        error = rejected("Contacts_SearchContacts", {"query": 1, "limit": 0, "extra": True})
        assert "query: " in error
        assert "limit: " in error
        assert "extra" in error

    @pytest.mark.parametrize("value", [True, "3", 3.5, None])
    def test_types_are_json_schema_types(self, value: Any) -> None:
        assert "limit: " in rejected("Contacts_SearchContacts", {"query": "Anna", "limit": value})

    @pytest.mark.parametrize(
        ("declared", "used"),
        [
            ("InvalidRequestException", "InvalidRequestException"),
            ("InvalidArgument", "InvalidArgument"),
            ("BadRequest", "BadRequest"),
            ("ValidationError", "ValidationError"),
            ("InvalidState", "InvalidRequest"),
            ("NotFound", "InvalidRequest"),
        ],
    )
    def test_a_declared_error_for_invalid_requests_is_used(self, declared: str, used: str) -> None:
        kit = Toolkit(
            name="Kit",
            title="Kit",
            category="x",
            description="x",
            tools=(tool("Do", "read", record(a=TEXT), record(b=TEXT), **{"NotFound": "x", declared: "x"}),),
        )
        observation = act(ValidatedEmulator(unreachable), trajectory(toolkits=(kit,)), "Kit_Do", {})
        assert str(observation.content["error"]).startswith(f"{used}: ")

    def test_nothing_reveals_that_the_world_is_emulated(self) -> None:
        errors = [rejected("Nope", {}), rejected("Contacts_GetContact", "x"), rejected("Contacts_GetContact", {})]
        assert not [word for word in ("emulat", "simulat", "virtual", "toolemu", "test") if word in str(errors).lower()]

    def test_a_valid_call_is_passed_on(self) -> None:
        observation = act(ValidatedEmulator(Fixed(ANNA)), trajectory(), "Contacts_GetContact", {"contact_id": "c-81f"})
        assert observation.content == ANNA


class TestPinnedEmulator:
    def test_the_first_matching_pin_answers(self) -> None:
        pins = (
            Pin(tool="Contacts.GetContact", arguments={"contact_id": "c-2"}, error="NotFound: no"),
            Pin(tool="Contacts.GetContact", returns=ANNA),
            Pin(tool="Contacts.GetContact", error="NotFound: never reached"),
        )  # fmt: skip
        where = trajectory(*pins)
        first = act(PinnedEmulator(unreachable), where, "Contacts_GetContact", {"contact_id": "c-2"})
        second = act(PinnedEmulator(unreachable), where, "Contacts_GetContact", {"contact_id": "c-1"})
        assert (first.content, first.source) == ({"error": "NotFound: no"}, "pinned")
        assert (second.content, second.source) == (ANNA, "pinned")

    def test_a_call_without_a_matching_pin_is_passed_on(self) -> None:
        pin = Pin(tool="Contacts.GetContact", arguments={"schema": {"required": ["other"]}}, returns=ANNA)
        where = trajectory(pin)
        assert act(PinnedEmulator(Fixed({"a": 1})), where, "Contacts_GetContact", {"contact_id": "c"}).content == {
            "a": 1
        }
        assert act(PinnedEmulator(Fixed({"b": 1})), where, "Contacts_CreateContact", {"other": "c"}).content == {"b": 1}

    def test_a_plain_value_matches_only_equal_arguments(self) -> None:
        where = trajectory(Pin(tool="Contacts.GetContact", arguments={"contact_id": "c-2"}, returns=ANNA))
        assert (
            act(PinnedEmulator(Fixed({"a": 1})), where, "Contacts_GetContact", {"contact_id": "c-2"}).source == "pinned"
        )
        assert act(PinnedEmulator(Fixed({"a": 1})), where, "Contacts_GetContact", {"contact_id": "c-3"}).content == {
            "a": 1
        }

    def test_a_call_with_invalid_arguments_is_not_counted(self) -> None:
        where = trajectory(Pin(tool="Contacts.GetContact", nth=1, returns=ANNA))
        emulator = ValidatedEmulator(PinnedEmulator(Fixed({"a": 1})))
        assert act(emulator, where, "Contacts_GetContact", {"contact_id": 7}).source == "rejected"
        assert act(emulator, where, "Contacts_GetContact", {"contact_id": "c-1"}).source == "pinned"
        assert act(emulator, where, "Contacts_GetContact", {"contact_id": "c-1"}).content == {"a": 1}

    @pytest.mark.usefixtures("short_search_limit")
    def test_a_pin_that_cannot_be_decided_in_time_answers_nothing(self) -> None:
        slow = {"schema": {"properties": {"contact_id": {"pattern": "(?=a)(a|aa)+$(?!b)"}}}}
        where = trajectory(Pin(tool="Contacts.GetContact", arguments=slow, returns=ANNA))
        with pytest.raises(InconclusiveError, match=r"takes over 0\.02 s on a text of 5,001 characters"):
            act(PinnedEmulator(unreachable), where, "Contacts_GetContact", {"contact_id": "a" * 5_000 + "!"})


class TestConsistentEmulator:
    def test_the_same_read_gets_the_same_answer(self) -> None:
        where, emulator = trajectory(), ConsistentEmulator(Fixed(ANNA, {"contacts": []}, {"later": 1}))
        first = act(emulator, where, "Contacts_GetContact", {"contact_id": "c-81f"})
        act(emulator, where, "Contacts_SearchContacts", {"query": "Anna", "limit": 3})
        again = act(emulator, where, "Contacts_GetContact", {"contact_id": "c-81f"})
        other_order = act(emulator, where, "Contacts_SearchContacts", {"limit": 3, "query": "Anna"})
        assert (again.content, again.source) == (first.content, "remembered")
        assert (other_order.content, other_order.source) == ({"contacts": []}, "remembered")

    def test_a_read_with_other_arguments_is_another_read(self) -> None:
        where, emulator = trajectory(), ConsistentEmulator(Fixed({"a": 1}, {"a": 2}))
        act(emulator, where, "Contacts_SearchContacts", {"query": "Anna", "limit": 1})
        assert act(emulator, where, "Contacts_SearchContacts", {"query": "Anna", "limit": 2}).content == {"a": 2}

    @pytest.mark.parametrize("write", ["Contacts_CreateContact", "Contacts_NotifyContact", "ThermostatSetTarget"])
    def test_a_write_in_any_toolkit_invalidates_earlier_reads(self, write: str) -> None:
        where, emulator = trajectory(), ConsistentEmulator(Fixed({"a": 1}, {"done": 1}, {"a": 2}))
        act(emulator, where, "Contacts_SearchContacts", {"query": "Anna"})
        act(emulator, where, write, {})
        assert act(emulator, where, "Contacts_SearchContacts", {"query": "Anna"}).content == {"a": 2}

    def test_a_write_that_failed_changes_nothing(self) -> None:
        where, emulator = trajectory(), ConsistentEmulator(Fixed({"a": 1}, {"error": "NotFound: no"}))
        act(emulator, where, "Contacts_SearchContacts", {"query": "Anna"})
        act(emulator, where, "Contacts_UpdateContact", {"contact_id": "c"})
        assert act(emulator, where, "Contacts_SearchContacts", {"query": "Anna"}).content == {"a": 1}

    def test_an_error_is_not_repeated_and_does_not_replace_an_earlier_result(self) -> None:
        down = {"error": "Down: try again"}
        where, inner = trajectory(), Fixed(down, {"a": 1})
        reads = [act(ConsistentEmulator(inner), where, "Contacts_SearchContacts", {"query": "A"}) for _ in range(3)]
        assert [read.content for read in reads] == [down, {"a": 1}, {"a": 1}]
        assert [read.source for read in reads][2] == "remembered"

    @pytest.mark.parametrize("pinned", [{"error": "Busy: try again"}, {"returns": ANNA}])
    def test_what_a_pin_answers_once_is_not_repeated(self, pinned: dict[str, Any]) -> None:
        pin = Pin(tool="Contacts.GetContact", nth=1, **pinned)
        where, emulator = trajectory(pin), PinnedEmulator(ConsistentEmulator(Fixed({"a": 1})))
        reads = [act(emulator, where, "Contacts_GetContact", {"contact_id": "c-1"}) for _ in range(3)]
        assert [read.content for read in reads] == [pin.content, {"a": 1}, {"a": 1}]

    def test_writes_are_never_answered_from_memory(self) -> None:
        where, emulator = trajectory(), ConsistentEmulator(Fixed({"n": 1}, {"n": 2}))
        act(emulator, where, "Contacts_CreateContact", {"name": "Anna"})
        assert act(emulator, where, "Contacts_CreateContact", {"name": "Anna"}).content == {"n": 2}


def test_a_wrapper_has_the_identity_of_the_inner_emulator() -> None:
    assert ValidatedEmulator(PinnedEmulator(ConsistentEmulator(OfflineEmulator()))).identity == {"kind": "offline"}
    assert ValidatedEmulator(unreachable).identity["name"] == "tests.emulators.resolved_cases:unreachable"
