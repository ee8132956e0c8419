"""Errors of shipped tools that depend on rows, and values that a change leaves as they are."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from pytest_toolemu.core.case import User
from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.toolkit import benchmark_folder
from pytest_toolemu.core.world.toolkit_plan import plan_of
from pytest_toolemu.core.world.world import World
from pytest_toolemu.core.world.world_state import WorldBeginning

ME, OTHER = "ada@example.org", "bo@example.org"
CONTRACT = {
    "contract_id": "ct-1", "title": "Frame", "parties": ["A", "B"], "version": 1, "changed_at": "2026-05-01T09:00:00Z",
    "text": "Schedule A: six printers. Schedule B: emergency calls.", "comments": [], "history": [],
}  # fmt: skip


def world(kit: str, rows: dict[str, list[dict[str, Any]]]) -> World:
    plan = plan_of(load_toolkit(benchmark_folder() / "toolkits" / f"{kit}.toolkit.yaml"))
    return World(
        WorldBeginning({kit: plan}, {kit: rows}),
        ids={},
        user=User(name="Ada Lovelace", email=ME),
        now=datetime.fromisoformat("2026-05-04T10:00:00+00:00"),
        seed="guards",
    )


def error_of(content: dict[str, Any]) -> str | None:
    return str(content["error"]).partition(":")[0] if "error" in content else None


@pytest.mark.parametrize(
    ("organizer", "guests", "expected"),
    [(OTHER, [ME], None), (OTHER, [ME.upper(), OTHER], None), (OTHER, [], "NotFound"), (OTHER, ["cy@example.org"], "NotFound"),
     (ME, [ME], "NotFound")],
)  # fmt: skip
def test_only_an_invitation_can_be_answered(organizer: str, guests: list[str], expected: str | None) -> None:
    event = {
        "event_id": "ev-1", "calendar_id": "cal-1", "title": "Lunch", "start": "2026-05-05T12:00:00Z",
        "end": "2026-05-05T13:00:00Z", "recurrence": "none", "organizer": organizer,
        "guests": [{"email": email, "response": "none"} for email in guests],
    }  # fmt: skip
    calendar = {"calendar_id": "cal-1", "name": "Ada", "access": "owner", "shared_with": []}
    planner = world("DayPlanner", {"calendar": [calendar], "event": [event]})
    content = planner.call("DayPlanner.RespondToInvitation", {"event_id": "ev-1", "response": "accepted"}, 0)
    assert error_of(content) == expected


@pytest.mark.parametrize(
    ("my_role", "members", "sender", "expected"),
    [
        ("member", [("pp-1", "Ada Lovelace"), ("pp-2", "Bo")], ("pp-1", "Ada Lovelace"), None),
        ("member", [("pp-1", "Ada Lovelace"), ("pp-2", "Bo")], ("pp-2", "Bo"), "PermissionDenied"),
        ("member", [("pp-1", "Ada Lovelace")], ("pp-7", "Ada Lovelace"), "PermissionDenied"),
        ("member", [], ("pp-2", "Bo"), "PermissionDenied"),
        ("member", [], ("pp-1", "Ada Lovelace"), None),
        ("admin", [], ("pp-2", "Bo"), None),
        ("owner", [("pp-1", "Ada Lovelace"), ("pp-2", "Bo")], ("pp-2", "Bo"), None),
    ],
)
def test_only_own_messages_can_be_deleted_by_a_member(
    my_role: str, members: list[tuple[str, str]], sender: tuple[str, str], expected: str | None
) -> None:
    conversation = {
        "conversation_id": "cv-1", "name": "House", "kind": "group", "created_on": "2026-01-01", "my_role": my_role,
        "last_message_at": "2026-05-04T09:00:00Z", "description": "",
        "members": [{"person_id": key, "name": name, "role": "member"} for key, name in members],
    }  # fmt: skip
    message = {
        "message_id": "ms-1", "conversation_id": "cv-1", "sender_id": sender[0], "sender_name": sender[1],
        "sent_at": "2026-05-04T09:00:00Z", "text": "Hello",
    }  # fmt: skip
    round_ = world("TalkRound", {"conversation": [conversation], "message": [message]})
    assert error_of(round_.call("TalkRound.DeleteMessage", {"message_id": "ms-1"}, 0)) == expected


@pytest.mark.parametrize(
    ("state", "expected"), [("open", "Conflict"), ("offer_made", "Conflict"), ("settled", None), ("rejected", None)]
)
def test_a_damage_is_claimed_once_while_its_claim_is_open(state: str, expected: str | None) -> None:
    policy = {"policy_id": "h-1", "kind": "home", "title": "Contents", "insurer": "Polder", "state": "in_force"}
    claim = {
        "claim_id": "cl-1", "policy_id": "h-1", "happened_on": "2026-05-01", "title": "Water", "state": state,
        "documents": [], "history": [],
    }  # fmt: skip
    keep = world("CoverKeep", {"policy": [policy], "claim": [claim]})
    claimed = {"policy_id": "h-1", "happened_on": "2026-05-01", "cause": "A pipe burst.", "items": []}
    assert error_of(keep.call("CoverKeep.FileClaim", claimed, 0)) == expected


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("A", None), ("Schedule B", None), ("b", None), ("Schedule A (printers)", None), ("printers", None),
     ("C", "NotFound"), ("Schedule C", "NotFound"), ("garden", "NotFound"), (None, None)],
)  # fmt: skip
def test_notice_is_given_only_for_a_schedule_of_the_contract(schedule: str | None, expected: str | None) -> None:
    room = world("PactRoom", {"contract": [{**CONTRACT, "state": "in_force", "signers": []}]})
    arguments = {"contract_id": "ct-1", **({"schedule": schedule} if schedule else {})}
    assert error_of(room.call("PactRoom.GiveNotice", arguments, 0)) == expected


@pytest.mark.parametrize(("signed", "expected"), [([True, True], "Conflict"), ([True, False], None), ([], None)])
def test_a_contract_that_everybody_has_signed_cannot_be_recalled(signed: list[bool], expected: str | None) -> None:
    signers = [{"name": "S", "email": f"s{index}@b.org", "party": "B", "signed": is_signed} for index, is_signed in enumerate(signed)]  # fmt: skip
    room = world("PactRoom", {"contract": [{**CONTRACT, "state": "out_for_signature", "signers": signers}]})
    assert error_of(room.call("PactRoom.RecallContract", {"contract_id": "ct-1"}, 0)) == expected


@pytest.mark.parametrize(
    ("principal", "expected"),
    [("noor@firm.org", None), ("203.0.113.77/32", None), ("0.0.0.0/0", None), ("203.0.113.77", None),
     ("2001:db8::/32", None), ("::/0", None), ("deadline.com", "InvalidRequest"), ("face.bed", "InvalidRequest"),
     ("Noor Haddad", "InvalidRequest"), ("a, b@firm.org", "InvalidRequest"), ("everyone", "InvalidRequest")],
)  # fmt: skip
def test_access_is_granted_to_an_address_or_a_network_only(principal: str, expected: str | None) -> None:
    resource = {"resource_id": "ins-1", "kind": "instance", "name": "db", "status": "running"}
    pilot = world("StackPilot", {"resource": [resource]})
    arguments = {"resource_id": "ins-1", "principal": principal, "permission": "view"}
    assert error_of(pilot.call("StackPilot.GrantAccess", arguments, 0)) == expected


@pytest.mark.parametrize(("quantities", "expected"), [((6, 4), None), ((6, 5), "Conflict")])
def test_the_lines_of_an_order_share_the_stock_that_is_named(quantities: tuple[int, int], expected: str | None) -> None:
    stock = {
        "stock_id": "ST-1", "article_id": "10-1", "name": "Tubing", "lot": "L", "location_id": "R-1", "quantity": 10,
        "status": "available",
    }  # fmt: skip
    order = {
        "order_id": "SO-1", "direction": "out", "partner": "Hospital", "placed_on": "2026-05-01", "state": "open",
        "lines": [{"article_id": "10-1", "name": "Tubing", "quantity": quantity} for quantity in quantities],
    }  # fmt: skip
    book = world("AisleBook", {"stock_entry": [stock], "stock_order": [order]})
    content = book.call("AisleBook.ReleaseOrder", {"order_id": "SO-1", "stock_ids": ["ST-1"]}, 0)
    assert error_of(content) == expected


SAVED = [
    ("SchoolSlate.SaveGuardian", {"guardian": [{"guardian_id": "gu-1", "student_id": "st-1", "name": "Sanita", "relation": "mother", "email": ME, "custody": True, "gets_notices": False}], "student": [{"student_id": "st-1", "name": "Kaspars"}]},
     {"guardian_id": "gu-1", "student_id": "st-1", "name": "Sanita A", "relation": "mother", "email": ME}, {"custody": True, "gets_notices": False}),
    ("ChainSatchel.SaveAddress", {"own_address": [{"network": "Meridian", "address": f"0x{'b' * 40}"}], "saved_address": [{"entry_id": "e-1", "label": "Mae", "address": f"0x{'a' * 40}", "network": "Meridian", "note": "Mill"}]},
     {"entry_id": "e-1", "label": "Mae B", "address": f"0x{'a' * 40}", "network": "Meridian"}, {"note": "Mill"}),
    ("ParcelDesk.SaveAddress", {"address": [{"address_id": "AD-1", "name": "Bo", "street": "Kai 1", "postal_code": "0010", "city": "Oslo", "country": "NO", "phone": "+47 1"}]},
     {"address_id": "AD-1", "name": "Bo", "street": "Kai 2", "postal_code": "0010", "city": "Oslo", "country": "NO"}, {"phone": "+47 1"}),
    ("TenancyBoard.SetViewing", {"viewing": [{"viewing_id": "vw-1", "address": "Kai 1", "starts_at": "2026-05-09T10:00:00Z", "minutes": 45, "visitors": ["Bo"]}]},
     {"viewing_id": "vw-1", "starts_at": "2026-05-10T10:00:00Z"}, {"minutes": 45, "visitors": ["Bo"]}),
    ("ShipLane.SetVariable", {"pipeline": [{"pipeline_id": "pl-1", "name": "build"}], "variable": [{"variable_id": "v-1", "pipeline_id": "pl-1", "name": "TOKEN", "value": "a", "secret": True}]},
     {"pipeline_id": "pl-1", "name": "TOKEN", "value": "b"}, {"secret": True}),
    ("StubGate.IssueTickets", {"event": [{"event_id": "ev-1", "title": "Play", "capacity": 90, "sold": 10, "status": "on_sale"}], "ticket_order": [{"order_id": "or-1", "event_id": "ev-1", "name": "Bo", "email": OTHER, "tickets": 4, "category": "box", "status": "requested"}]},
     {"event_id": "ev-1", "order_id": "or-1", "name": "Bo", "email": OTHER}, {"tickets": 4, "category": "box"}),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "rows", "arguments", "kept"), SAVED, ids=[saved[0] for saved in SAVED])
def test_an_absent_argument_leaves_a_value_unchanged(
    tool: str, rows: dict[str, list[dict[str, Any]]], arguments: dict[str, Any], kept: dict[str, Any]
) -> None:
    kit = tool.partition(".")[0]
    changed = world(kit, rows)
    assert error_of(changed.call(tool, arguments, 0)) is None
    values = [{name: row.get(name) for name in kept} for entity in changed.rows()[kit].values() for row in entity if row.keys() >= kept.keys()]  # fmt: skip
    assert kept in values
    assert all(value == kept for value in values)


def test_each_launch_and_each_refused_refund_leaves_a_trace() -> None:
    craft = {"craft_id": "K-1", "name": "Harrier", "state": "ready", "battery_percent": 90}
    mission = {"mission_id": "MS-1", "craft_id": "K-1", "state": "draft", "start_at": "2026-05-05T10:00:00Z"}
    yard = world("KiteYard", {"craft": [craft], "mission": [mission]})
    for number in range(2):
        yard.call("KiteYard.LaunchMission", {"mission_id": "MS-1"}, number)
    assert [row["mission_id"] for row in yard.rows()["KiteYard"]["launch"]] == ["MS-1", "MS-1"]
    order = {"order_id": "or-1", "event_id": "ev-1", "paid": 20, "tickets": 1, "status": "paid", "currency": "EUR"}
    gate = world("StubGate", {"event": [{"event_id": "ev-1", "sold": 1, "capacity": 9}], "ticket_order": [order]})
    for number in range(2):
        gate.call("StubGate.RefundOrders", {"order_ids": ["or-1"]}, number)
    rows = gate.rows()["StubGate"]
    assert [row["amount"] for row in rows["refund"]] == [20]
    assert [(row["order_id"], row["reason"]) for row in rows["failed_refund"]] == [("or-1", "refunded")]


@pytest.mark.parametrize(("amounts", "expected"), [((0.1, 0.2), None), ((0.1, 0.21), "InvalidRequest")])
def test_deductions_can_be_exactly_the_deposit(amounts: tuple[float, ...], expected: str | None) -> None:
    tenancy = {"tenancy_id": "te-1", "deposit": 0.3, "deposit_account": "DE1", "ended_on": "2026-04-30"}
    deductions = [{"reason": "Paint", "amount": amount} for amount in amounts]
    arguments = {"tenancy_id": "te-1", "deductions": deductions}
    content = world("TenancyBoard", {"tenancy": [tenancy]}).call("TenancyBoard.SettleDeposit", arguments, 0)
    assert error_of(content) == expected
    assert content.get("paid_back", 0) == 0


@pytest.mark.parametrize(("replicas", "expected"), [(3, None), (4, "QuotaExceeded")])
def test_a_workload_can_use_exactly_the_quota(replicas: int, expected: str | None) -> None:
    rows = {
        "namespace": [{"namespace": "shop", "workloads": 1, "cpu_quota": 0.3, "cpu_used": 0.1}],
        "workload": [{"workload_id": "wl-1", "namespace": "shop", "replicas": 1, "cpu_per_replica": 0.1}],
    }
    arguments = {"workload_id": "wl-1", "replicas": replicas}
    assert error_of(world("QuayDeck", rows).call("QuayDeck.ScaleWorkload", arguments, 0)) == expected
