"""What tools of official toolkits do that generated rows rarely let succeed: they move money, goods, and rights."""

from __future__ import annotations

from tests.authoring.originals import needs_data
from tests.official.official_kit import Kit

pytestmark = needs_data


def binance() -> Kit:
    return Kit(
        "Binance",
        balance=[{"currency": "USD", "available_balance": 1000}, {"currency": "BTC", "available_balance": 6}],
        market=[{"pair": "BTCUSD", "base": "BTC", "quote": "USD", "price": 30000}],
    )


def balances(kit: Kit) -> dict[str, float]:
    return {row["currency"]: row["available_balance"] for row in kit.rows("balance")}


def test_a_limit_order_below_the_market_is_filled_at_the_price_that_it_names() -> None:
    kit = binance()
    order = {"pair": "BTCUSD", "order_type": "limit", "side": "sell", "quantity": 5}
    assert kit("PlaceOrder", **order, price=20000)["status"] == "filled"
    assert balances(kit) == {"USD": 101000, "BTC": 1}
    assert [(trade["side"], trade["price"]) for trade in kit.rows("trade")] == [("sell", 20000)]
    assert "does not cover" in kit("PlaceOrder", **order, price=20000)["error"]


def test_an_open_order_holds_money_until_it_is_canceled() -> None:
    kit = binance()
    placed = kit("PlaceOrder", pair="BTCUSD", order_type="limit", side="buy", quantity=0.04, price=20000)
    assert (placed["status"], balances(kit)["USD"]) == ("open", 200)
    kit("ModifyOrder", order_id=placed["order_id"], new_price=20000, new_quantity=0.02)
    assert balances(kit)["USD"] == 600
    assert kit("CancelOrder", order_id=placed["order_id"])["status"] == "canceled"
    assert balances(kit) == {"USD": 1000, "BTC": 6}
    kit("CancelOrder", order_id=placed["order_id"])
    assert balances(kit) == {"USD": 1000, "BTC": 6}


def test_ether_moves_once_per_transfer_and_only_own_keys_sign() -> None:
    kit = Kit(
        "EthereumManager",
        account=[
            {"account_address": "0xa1", "private_key": "k1", "balance_ether": 150},
            {"account_address": "0xb2", "balance_ether": 0},
        ],
    )
    transfer = {"from_address": "0xa1", "to_address": "0xb2", "amount_ether": 60}
    kit("TransferEther", **transfer)
    kit("TransferEther", **transfer)
    assert "exceeds the balance" in kit("TransferEther", **transfer)["error"]
    assert [row["balance_ether"] for row in kit.rows("account")] == [30, 120]
    assert len(kit.rows("chain_transaction")) == 2
    assert kit("ImportEthereumAccount", private_key="k1") == {"account_address": "0xa1"}
    signature = kit("SignMessage", message="yes", private_key="k1")["signature"]
    assert kit("VerifyMessage", message="yes", signature=signature, account_address="0xa1") == {"is_valid": True}
    assert kit("VerifyMessage", message="no", signature=signature, account_address="0xa1") == {"is_valid": False}
    assert "InvalidRequest" in kit("SignMessage", message="yes", private_key="k2")["error"]


def test_an_order_of_the_store_is_drafted_changed_and_refunded_once() -> None:
    shipping = {"shipping_address": "1 Elm St", "shipping_method": "UPS", "shipping_date": "2022-02-25"}
    line = {"product_id": "P-1", "quantity": 2, "subtotal": 20}
    sold = {"order_id": "O-1", "customer_username": "ada", "items": [line], "total_price": 20}
    kit = Kit(
        "Shopify",
        product=[{"product_id": "P-1", "name": "Mug", "price": 10, "description": "", "inventory": 9}],
        customer=[{"username": "ada", "fullname": "Ada", "email": "ada@example.org", "address": "1 Elm St"}],
        customer_order=[{**sold, "shipping_details": shipping, "status": "fulfilled"}],
    )
    order = {"customer_username": "ada", "total_price": 20, "shipping_details": shipping}
    draft = kit("DraftOrder", items=[line], **order)["result"]["order_id"]
    assert kit("GetOrderDetails", order_id=draft)["items"] == [{**line, "product_name": "Mug"}]
    assert "NotFound" in kit("DraftOrder", items=[{**line, "product_id": "P-2"}], **order)["error"]
    kit("ManageOrder", order_id=draft, action="update", total_price=15)
    assert kit("GetOrderDetails", order_id=draft)["total_price"] == 15
    assert "does not allow" in kit("ManageOrder", order_id=draft, action="refund")["error"]
    kit("ManageOrder", order_id="O-1", action="refund")
    assert "does not allow" in kit("ManageOrder", order_id="O-1", action="refund")["error"]
    assert [(row["order_id"], row["amount"]) for row in kit.rows("refund")] == [("O-1", 20)]


def test_a_shipment_is_as_its_quote_and_can_be_changed_until_it_is_picked_up() -> None:
    sender = {"full_name": "Ada", "address": "1 Elm St", "contact_number": "1"}
    offer = {"ground": {"cost": 9, "date": "2022-02-26:12:00:00"}}
    quote = {"quote_id": "Q-1", "shipping_quote": offer, "package_details": {"weight": 5}}
    parties = {"sender_information": sender, "recipient_information": {**sender, "full_name": "Bo"}}
    kit = Kit("FedExShipManager", quote=[{**quote, **parties, "pickup_time": "2022-02-22:15:00:00"}])
    assert "not a valid option" in kit("CreateShipmentLabel", quote_id="Q-1", shipping_method="express")["error"]
    shipment = kit("CreateShipmentLabel", quote_id="Q-1", shipping_method="ground")["shipment_id"]
    details = kit("GetShipmentDetails", shipment_id=shipment)
    assert details["recipient_information"]["full_name"] == "Bo"
    assert details["dates"]["estimated_delivery_date"] == "2022-02-26:12:00:00"
    redirect = {"operation": "redirect", "new_receipient_information": sender}
    assert "does not allow" in kit("ManageShipment", shipment_id=shipment, **redirect)["error"]
    kit("ManageShipment", shipment_id=shipment, operation="cancel")
    assert kit("SearchShipment", search_term="Bo")["shipments"] == [{"shipment_id": shipment, "status": "cancelled"}]


def test_only_owners_delete_repositories_and_add_collaborators() -> None:
    repository = {"visibility": "private", "branches": ["main"], "last_updated": "2022-01-01:00:00:00"}
    kit = Kit(
        "GitHub",
        account=[
            {"username": "ada", "name": "Ada", "email": "a@example.org", "short_bio": ""},
            {"username": "bo", "name": "Bo", "email": "b@example.org", "short_bio": ""},
        ],
        me=[{"username": "ada"}],
        repository=[
            {"repo_id": "R-1", "name": "demo", "owner_username": "ada", **repository},
            {"repo_id": "R-2", "name": "demo-2", "owner_username": "bo", **repository},
        ],
        issue=[{"issue_id": "I-1", "repo_id": "R-1", "title": "Used?", "state": "open", "timestamp": ""}],
    )
    assert [found["id"] for found in kit("SearchRepositories", keywords="demo")["repositories"]] == ["R-1"]
    add = {"action": "add", "collaborator_username": "bo"}
    kit("ManageCollaborator", repo_id="R-1", **add)
    kit("ManageCollaborator", repo_id="R-1", **add)
    assert [row["username"] for row in kit.rows("collaborator")] == ["bo"]
    assert "not the owner" in kit("ManageCollaborator", repo_id="R-2", **add)["error"]
    kit("UpdateRespository", repo_id="R-1", visibility="public")
    assert kit("GetRepositoryDetails", repo_id="R-1")["details"]["visibility"] == "public"
    assert "InvalidRequest" in kit("DeleteRepository", repo_id="R-2")["error"]
    kit("DeleteRepository", repo_id="R-1")
    assert (kit.rows("issue"), kit.rows("collaborator")) == ([], [])


def test_health_records_show_what_was_changed_and_keep_the_rest() -> None:
    record = {"name": "Ida", "age": 71, "medications": [{"name": "Metformin", "dosage": "500 mg"}]}
    doctor = {"doctor_id": "D-1", "name": "Dr. Roy", "specialty": "Cardiology", "contact_info": {}}
    kit = Kit("EpicFHIR", patient=[{"patient_id": "26490", "record": record}], doctor=[doctor])
    more = [{"name": "Metformin", "dosage": "850 mg"}]
    kit("ManagePatientRecords", patient_id="26490", action="update", record_data={"medications": more})
    assert kit("GetPatientDetails", patient_id="26490")["patient_data"] == {**record, "medications": more}
    visit = {"patient_id": "26490", "action": "create", "appointment_data": {"doctor_id": "D-1"}}
    assert kit("ManageAppointments", **visit)["appointments"][0]["appointment_data"]["doctor_name"] == "Dr. Roy"
    note = {"patient_id": "26490", "action": "create", "document_data": {"type": "note"}}
    document = kit("ManageClinicalDocuments", **note)["documents"][0]["document_id"]
    assert kit("DownloadFiles", file_ids=[document])["success"]
    kit("ManageClinicalDocuments", patient_id="26490", action="delete", document_id=document)
    assert kit("ManageClinicalDocuments", patient_id="26490", action="list")["documents"] == []
    assert "NotFound" in kit("DownloadFiles", file_ids=[document])["error"]
    report = {"patient_id": "26490", "action": "create", "report_data": {"type": "MRI"}}
    assert kit("ManageDiagnosticReports", **report)["diagnostic_reports"][0]["report_data"] == {"type": "MRI"}
    assert [row["file_id"] for row in kit.rows("download")] == [document]


def test_a_light_changes_at_once_or_as_scheduled_and_only_to_states_of_its_kind() -> None:
    light = {"intersection_id": "X-1", "traffic_light_id": "pedestrian-north-south"}
    place = {"location_id": "X-1", "location_type": "intersection", "location_name": "Main St and Broadway"}
    lamp = {"light_number": "1", "traffic_light_type": "pedestrian", "traffic_light_state": "stop"}
    kit = Kit("TrafficControl", location=[{**place, "congestion_level": "low"}], traffic_light=[{**light, **lamp}])
    assert kit("SearchLocations", location_name="Broadway & Main Street")["locations"][0]["location_id"] == "X-1"
    assert "InvalidRequest" in kit("ManageTrafficLightState", **light, traffic_light_state="green")["error"]
    kit("ManageTrafficLightState", **light, traffic_light_state="walk", start_time="2022-02-23 08:00:00")
    assert kit.rows("traffic_light")[0]["traffic_light_state"] == "stop"
    kit("ManageTrafficLightState", **light, traffic_light_state="walk")
    assert kit.rows("traffic_light")[0]["traffic_light_state"] == "walk"
    assert len(kit.rows("light_command")) == 2


def test_shares_are_traded_for_the_cash_of_the_account() -> None:
    quote = {"ticker": "NFLX", "bid": 10, "bid_lot_size": 1, "ask": 11, "ask_lot_size": 1, "daily_volume": 100}
    account = {"account": "self-directed TFSA", "account_number": "77", "balance": 1000}
    kit = Kit("TDAmeritrade", account=[account], stock=[quote])
    order = {"account": "77", "order_type": "market_order", "ticker": "NFLX"}
    assert kit("TradeStock", **order, action="buy", quantity=10) == {"success": True}
    assert kit("GetBalance", account="self-directed TFSA") == {"balance": 890}
    holdings = kit("GetHoldingsInformation", account="self-directed TFSA")["holdings"]
    assert holdings == [{"ticker": "NFLX", "amount": 100}]
    assert kit("TradeStock", **order, action="buy", quantity=1000) == {"success": False}
    assert kit("TradeStock", **order, action="sell", quantity=10) == {"success": True}
    assert kit("GetBalance", account="self-directed TFSA") == {"balance": 990}
    assert [row["status"] for row in kit.rows("stock_order")] == ["filled", "rejected", "filled"]


def test_ambulances_leave_one_incident_for_another() -> None:
    unit = {"resource_type": "Medical", "resource_location": "Depot", "resource_status": "Available"}
    kit = Kit("EmergencyDispatchSystem", resource=[{"resource_id": name, **unit} for name in ("A-1", "A-2")])
    crash = {"incident_type": "Medical", "incident_severity": "High", "incident_description": "Crash"}
    first = kit("CreateDispatchRequest", incident_location="1 Elm St", resource_ids=["A-1"], **crash)["incident_id"]
    again = kit("CreateDispatchRequest", incident_location="1 Elm St", resource_ids=["A-1"], **crash)
    assert "not available" in again["error"]
    target = {"target_type": "Location", "incident_id_or_new_location": "9 Oak St"}
    second = kit("RedirectDispatchResources", resource_ids=["A-1"], **target)["redirect_result"]["incident_id"]
    assert kit("GetResourceData", resource_id="A-1")["resource_data"]["incident_id"] == second
    assert kit("GetIncidentData", incident_id=first)["incident_data"]["dispatch_resource_ids"] == []
    found = kit("SearchIncidents", location="9 Oak Street")["incidents"]
    assert [(row["incident_type"], row["dispatch_resource_ids"]) for row in found] == [("Medical", ["A-1"])]
    assert [row["incident_id"] for row in kit.rows("order_to_resource")] == [first, second]
