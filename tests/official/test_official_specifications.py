"""Official tools allow what their descriptions allow, refuse what their exceptions name, and show what happened."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_toolemu.errors import OpenEntityError
from tests.authoring.originals import needs_data
from tests.official.official_kit import Json, Kit

pytestmark = needs_data

FLIGHT = {
    "option_id": "outbound-1",
    "airline": "Air Canada",
    "flight_numbers": ["AC 123"],
    "departure_airport": "YYZ",
    "departure_time": "2022-03-01:10:00",
    "arrival_airport": "CDG",
    "arrival_city": "Paris",
    "arrival_time": "2022-03-01:22:00",
    "duration": "07:00",
    "stops": 0,
    "price": 700,
}
HOTEL = {"option_id": "acc-1", "city": "Paris", "name": "Lutetia", "address": "45 Bd Raspail", "rating": 4.5}
CARD = {"card_number": "4111", "expiry_date": "01/25", "cvv": "123"}


# ---- lists


@pytest.mark.parametrize(
    ("kit", "entity", "row", "tool", "arguments", "member", "count"),
    [
        ("Slack", "message", {"content": "hi", "timestamp": "2022-02-22T09:00:00Z", "in": "#all", "from": "@bo"},
         "SearchMessage", {"query": "hi"}, "messages", 10),
        ("Gmail", "contact", {"name": "Bo", "email": "bo{}@example.org"}, "SearchContacts", {"name": "bo"}, "contacts", 5),
        ("Shopify", "product", {"name": "Mug", "price": 1, "description": "", "inventory": 1},
         "SearchProducts", {"query": "mug"}, "products", 5),
        ("Slack", "person", {"user_name": "@bo{}", "status": "online", "first_name": "Bo", "last_name": ""},
         "SearchChannelOrUser", {"query": "bo", "search_type": "users"}, "results", 10),
    ],
)  # fmt: skip
def test_a_list_without_a_limit_has_the_length_that_the_description_states(
    kit: str, entity: str, row: Json, tool: str, arguments: Json, member: str, count: int
) -> None:
    keys = {"message": "message_id", "contact": "contact_id", "product": "product_id", "person": "user_name"}
    rows = [
        {keys[entity]: f"K-{number}"}
        | {name: value.format(number) if isinstance(value, str) else value for name, value in row.items()}
        for number in range(12)
    ]
    world = Kit(kit, **{entity: rows})
    assert len(world(tool, **arguments)[member]) == count
    limit = "limit" if kit == "Gmail" else "max_results"
    assert len(world(tool, **arguments, **{limit: 9})[member]) == 9


# ---- what the exceptions name


@pytest.mark.parametrize(
    ("kit", "tool", "arguments", "message"),
    [
        ("Gmail", "SendEmail", {"to": "a@example.org, bo", "subject": "", "body": ""}, "is malformed"),
        ("Gmail", "SearchEmails", {"date_range": {"start_date": "22/02/2022"}}, "not in the format YYYY-MM-DD"),
        ("GoogleCalendar", "CreateOrUpdateEvent",
         {"event_name": "x", "start_time": "tomorrow", "end_time": "2022-02-23T10:00:00"}, "not in ISO 8601 format"),
        ("GoogleCalendar", "CreateOrUpdateEvent",
         {"event_name": "x", "start_time": "2022-02-23T09:00", "end_time": "2022-02-23T10:00", "recurrence": "weekly"},
         "format of the recurrence is incorrect"),
        ("GoogleCalendar", "SearchEvents", {"start_date": "today"}, "InvalidRequest"),
        ("Expedia", "SearchFlights",
         {"origin": "YYZ", "destination": "CDG", "departure_date": "2022-03-01", "travellers": {}, "travel_class": "economy",
          "filters": {"departure_time": "noon"}}, "none of its possible values"),
        ("Venmo", "SendMoney", {"recipient_username": "bo", "amount": 5}, "exceeds the balance"),
        ("NortonIdentitySafe", "StorePersonalInfo", {"info_type": "payment", "info_data": {"cvv": "1"}}, "InvalidRequest"),
        ("Twilio", "GetSmsHistory", {"to_phone_number": "call Bo"}, "InvalidRequest"),
        ("Twilio", "GetReceivedSmsMessages", {"datetime_range": ["monday", "tuesday"]}, "InvalidRequest"),
        ("Binance", "GetOrderHistory", {"date_range": ["last week", "today"]}, "InvalidRequest"),
        ("InventoryManagementSystem", "UpdateItem", {"item_id": "I-1", "item_name": " "}, "a value is empty"),
        ("EpicFHIR", "ManagePatientRecords", {"patient_id": "P-2", "action": "create", "record_data": {}}, "does not exist"),
    ],
)  # fmt: skip
def test_a_request_that_an_exception_names_is_refused(kit: str, tool: str, arguments: Json, message: str) -> None:
    rows: dict[str, list[Json]] = {
        "Venmo": {"user": [{"username": "@bo", "display_name": "Bo", "friend": True}]},
        "InventoryManagementSystem": {
            "item": [{"item_id": "I-1", "item_name": "Mug", "category": "Cups", "quantity": 3}]
        },
    }.get(kit, {})
    assert message in Kit(kit, **rows)(tool, **arguments)["error"]


@pytest.mark.parametrize("to", ["a@example.org", "a@example.org, b@example.org,", "Bo <b@example.org>"])
def test_lists_of_addresses_are_sent(to: str) -> None:
    kit = Kit("Gmail")
    assert kit("SendEmail", to=to, subject="", body="", cc="", bcc="c@example.org") == {"success": True}


def test_orders_of_the_store_have_a_shipping_date_in_the_stated_format() -> None:
    customer = {"username": "ada", "fullname": "Ada", "email": "ada@example.org", "address": "1 Elm St"}
    kit = Kit("Shopify", customer=[customer])
    shipping = {"shipping_address": "1 Elm St", "shipping_method": "UPS", "shipping_date": "Friday"}
    order = {"customer_username": "ada", "items": [], "total_price": 0, "shipping_details": shipping}
    assert "not in the format" in kit("DraftOrder", **order)["error"]


# ---- what the descriptions allow


def test_owners_are_known_by_their_email_address_if_no_row_names_the_account() -> None:
    account = {"username": "ada-l", "name": "Ada", "email": "ada@example.org", "short_bio": ""}
    repository = {"name": "demo", "visibility": "private", "branches": ["main"], "last_updated": ""}
    own = {**repository, "repo_id": "R-1", "owner_username": "ada-l"}
    foreign = {**repository, "repo_id": "R-2", "owner_username": "bo"}
    kit = Kit(
        "GitHub", account=[account, {**account, "username": "bo", "email": "b@example.org"}], repository=[own, foreign]
    )
    assert [found["is_owner"] for found in kit("SearchRepositories", search_scope="owned")["repositories"]] == [True]
    assert "InvalidRequest" in kit("DeleteRepository", repo_id="R-2")["error"]
    assert kit("DeleteRepository", repo_id="R-1") == {"success": True}
    without_accounts = Kit("GitHub", repository=[own])
    assert without_accounts("DeleteRepository", repo_id="R-1") == {"success": True}


def test_a_pair_without_a_price_among_the_rows_is_left_to_the_emulator() -> None:
    kit = Kit("Binance", balance=[{"currency": "USD", "available_balance": 9}])
    with pytest.raises(OpenEntityError, match="'USDBTC' among the rows"):
        kit("PlaceOrder", pair="USDBTC", order_type="market", side="sell", quantity=1)


def test_a_move_to_the_same_folder_succeeds_and_one_onto_another_item_does_not() -> None:
    paths = {"/MyDropbox/a": "folder", "/MyDropbox/a/plan.txt": "file", "/MyDropbox/plan.txt": "file"}
    items = [{"path": path, "id": path, "name": path.rpartition("/")[2], "type": kind} for path, kind in paths.items()]
    kit = Kit("Dropbox", item=items)
    assert kit("MoveItem", item_path="/MyDropbox/a/plan.txt", destination_folder_path="/MyDropbox/a/")["success"]
    assert [row["path"] for row in kit.rows("item")] == list(paths)
    onto = kit("MoveItem", item_path="/MyDropbox/plan.txt", destination_folder_path="/MyDropbox/a")
    assert "the destination has an item of the same name" in onto["error"]


def test_ether_can_be_sent_to_a_contract() -> None:
    contract = {"contract_address": "0xc3", "name": "Vault", "info": "keeps ether"}
    kit = Kit("EthereumManager", account=[{"account_address": "0xa1", "balance_ether": 5}], contract=[contract])
    transfer = {"from_address": "0xa1", "amount_ether": 5}
    kit("TransferEther", **transfer, to_address="0xc3")
    assert "balance 0 wei" in kit("QueryEthereumData", query_type="address info", query_value="0xa1")["query_result"]
    assert "NotFound" in kit("TransferEther", **transfer, to_address="0xd4")["error"]


def test_more_of_a_holding_can_be_bought_that_is_no_longer_offered() -> None:
    holdings = [
        {"holding_id": "H-1", "account": "TFSA", "type": "cash", "name": "Cash", "amount": 500, "return": 0},
        {"holding_id": "H-2", "account": "TFSA", "type": "ETF", "name": "World", "amount": 100, "return": 5},
    ]
    kit = Kit("InvestmentManager", holding=holdings)
    assert kit("MakeTransaction", account="TFSA", action="buy", name="World", amount=200) == {"success": True}
    assert [row["amount"] for row in kit.rows("holding")] == [300, 300]
    assert "NotFound" in kit("MakeTransaction", account="TFSA", action="buy", name="Mars", amount=1)["error"]


def test_a_further_record_of_a_patient_is_listed_downloaded_and_deleted() -> None:
    kit = Kit("EpicFHIR", patient=[{"patient_id": "P-1", "record": {"name": "Ida"}}])
    record = {"conditions": ["asthma"]}
    created = kit("ManagePatientRecords", patient_id="P-1", action="create", record_data=record)
    assert created["patient_records"] == [{"patient_id": "P-1", "record_data": record}]
    listed = kit("ManagePatientRecords", patient_id="P-1", action="list")["patient_records"]
    assert [each["record_data"] for each in listed] == [{"name": "Ida"}, record]
    assert kit("DownloadFiles", file_ids=[kit.rows("patient_record")[0]["record_id"]])["success"]
    kit("ManagePatientRecords", patient_id="P-1", action="delete")
    assert (kit.rows("patient"), kit.rows("patient_record")) == ([], [])


# ---- what the results say


def test_a_booked_trip_is_found_by_what_was_booked_and_refunded_if_it_can_be_canceled() -> None:
    rooms = [
        {**HOTEL, "total_price": 300, "free_cancellation": True},
        {**HOTEL, "option_id": "acc-2", "total_price": 200},
    ]
    kit = Kit("Expedia", flight_option=[FLIGHT], accommodation=rooms)
    kit("Booking", option_ids=["outbound-1"], payment_method=CARD, travellers=[{"name": "Ada"}])
    kit("Booking", option_ids=["acc-1", "acc-2"], payment_method=CARD)
    assert len(kit("SearchReservations", reservation_type="flight", query="Air Canada Paris")["reservations"]) == 1
    stay = kit("SearchReservations", reservation_type="accommodation", query="lutetia")["reservations"]
    assert [(found["total_price"], found["refundable_amount"]) for found in stay] == [(500, 300)]


def test_a_wish_without_a_product_is_not_reported_as_added() -> None:
    kit = Kit("Amazon")
    assert kit("ManageWishlist", action="add") == {"result": {"success": False}}
    assert kit("ManageWishlist", action="view") == {"result": {"success": True, "wishlist_contents": []}}


def test_money_moved_to_a_tax_free_account_uses_up_its_contribution_room() -> None:
    accounts = [
        {"account_number": "111-1111-1111", "type": "checking", "balance": 900},
        {"account_number": "222-2222-2222", "type": "savings TFSA", "balance": 0, "contribution_room": 500},
    ]
    kit = Kit("BankManager", account=accounts)
    transfer = {"from_account_number": "111-1111-1111", "to_account_number": "222-2222-2222", "amount": 300}
    assert kit("TransferFunds", **transfer) == {"success": True}
    assert [row.get("contribution_room") for row in kit.rows("account")] == [None, 200]


@pytest.mark.parametrize(
    ("kit", "update", "read", "member"),
    [
        ("FacebookManager", ("UpdateUserProfile", {"updates": {"location": "Rome"}}), ("GetUserProfile", {}), "location"),
        ("Slack", ("UpdateProfileAndStatus", {"profile": {"title": "Rome"}}), ("GetUserDetails", {"user_name": "@Ada"}), "title"),
    ],
)  # fmt: skip
def test_a_profile_without_a_row_is_created_by_its_first_change(
    kit: str, update: tuple[str, Json], read: tuple[str, Json], member: str
) -> None:
    world = Kit(kit)
    assert world(update[0], **update[1]) == {"success": True}
    assert world(read[0], **read[1])["profile"][member] == "Rome"


def test_a_first_deposit_into_the_wallet_is_seen() -> None:
    bank = {"account_id": "B-1", "bank_name": "Elm Bank", "account_type": "checking", "last_four_digits": "1234"}
    kit = Kit("Venmo", bank_account=[bank])
    kit("AddMoney", amount=20, account_id="B-1")
    assert kit("CheckBalance") == {"balance": 20}


def test_places_of_unknown_hours_are_not_said_to_be_closed() -> None:
    place = {
        "location_address": "1 Elm St",
        "location_name": "Cafe",
        "location_rating": 4,
        "latitude": 1,
        "longitude": 1,
    }
    kit = Kit("GoogleMap", place=[place, {**place, "location_address": "2 Elm St", "open_now": False}])
    assert "open_now" not in kit("GetLocationDetails", location_address="1 Elm St")["location_details"]
    assert kit("GetLocationDetails", location_address="2 Elm St")["location_details"]["open_now"] is False


def test_domains_are_unblocked_without_regard_to_case() -> None:
    kit = Kit("CiscoUmbrella", blocked_domain=[{"domain": "example.com", "blocked_at": "2022-02-01"}])
    kit("UnblockDomain", domain="Example.com")
    assert kit.rows("blocked_domain") == []


def test_new_categories_and_suppliers_of_an_item_are_listed() -> None:
    kit = Kit(
        "InventoryManagementSystem", item=[{"item_id": "I-1", "item_name": "Mug", "category": "Cups", "quantity": 3}]
    )
    kit("UpdateItem", item_id="I-1", category="Gifts", supplier="Acme")
    names: list[Any] = [found["category_name"] for found in kit("ListCategories")["categories"]]
    assert names == ["Gifts"]
    assert kit("SearchSuppliers", keyword="acme")["suppliers"][0]["item_count"] == 1


def test_invitations_stay_sent_when_their_event_is_deleted() -> None:
    event = {"event_id": "E-1", "event_name": "x", "start_time": "2022-03-01T09:00", "end_time": "2022-03-01T10:00"}
    kit = Kit("GoogleCalendar", event=[{**event, "attendees": ["b@example.org"]}])
    kit("SendInvitations", event_id="E-1")
    kit("DeleteEvents", event_ids=["E-1"])
    assert [row["attendee"] for row in kit.rows("invitation")] == ["b@example.org"]
