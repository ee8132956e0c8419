"""Numbers of rows are decimals, however SQLite computes; and null is a value where a schema says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_toolemu.core.world.database import decimal
from pytest_toolemu.core.world.state_changes import StateEdit
from pytest_toolemu.core.world.world import World
from pytest_toolemu.core.world.world_state import StateDatabase
from tests.worlds.library import world_of

SAVINGS = """\
name: Library
title: Savings
category: finance
description: The savings of readers.
entities:
  account:
    key: account_id
    like: GetAccount
    check: ["balance >= 0"]
tools:
  - name: GetAccount
    description: Return one account.
    parameters: {type: object, properties: {account_id: {type: string}}, required: [account_id]}
    returns:
      type: object
      properties:
        account_id: {type: string}
        balance: {type: number}
        nickname: {type: [string, "null"]}
        note: {type: [string, "null"]}
      required: [account_id, balance, nickname]
    errors: {NotFound: The account is unknown.}
    effect: read
    operation: {get: account}
  - name: ListAccounts
    description: List the accounts.
    parameters: {type: object, properties: {nickname: {type: [string, "null"]}, balance: {type: number}}}
    returns:
      type: object
      properties:
        accounts:
          type: array
          items:
            type: object
            properties: {account_id: {type: string}, nickname: {enum: [Rainy days, null]}}
            required: [account_id, nickname]
      required: [accounts]
    effect: read
    operation: {search: account}
  - name: ChangeAccount
    description: Change an account.
    parameters:
      type: object
      properties:
        account_id: {type: string}
        balance: {type: number}
        note: {type: [string, "null"]}
        nickname: {type: [string, "null"]}
      required: [account_id, nickname]
    returns: {type: object, properties: {account_id: {type: string}}, required: [account_id]}
    errors: {NotFound: The account is unknown.}
    effect: write
    operation: {update: account}
  - name: Withdraw
    description: Take money from an account.
    parameters:
      type: object
      properties: {account_id: {type: string}, amount: {type: number}, fee: {type: number, default: 0}}
      required: [account_id, amount]
    returns: {type: object, properties: {left: {type: number}}, required: [left]}
    errors: {NotFound: The account is unknown., InsufficientFunds: The balance is too low.}
    effect: irreversible
    operation:
      find: {account_id: account}
      fail: {InsufficientFunds: "account.balance < decimal(:amount + :fee)"}
      then: [UPDATE account SET balance = decimal(balance - :amount - :fee) WHERE account_id = :account_id]
      show: {left: SELECT balance FROM account WHERE account_id = :account_id}
"""


def savings(balance: float = 0.3, **more: Any) -> World:
    return world_of(SAVINGS, {"Library": {"account": [{"account_id": "A-1", "balance": balance, **NAMED, **more}]}})


NAMED: dict[str, Any] = {"nickname": "Rainy days"}


def call(world: World, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return world.call(f"Library.{tool}", {"account_id": "A-1", **arguments}, 0)


# ---- decimals


def test_an_account_can_be_emptied_in_several_steps() -> None:
    world = savings(0.3)
    left = [call(world, "Withdraw", amount=0.1) for _ in range(4)]
    assert left == [{"left": 0.2}, {"left": 0.1}, {"left": 0}, {"error": "InsufficientFunds: The balance is too low."}]
    assert world.rows()["Library"]["account"][0]["balance"] == 0


def test_a_guard_can_compare_a_decimal_sum() -> None:
    assert call(savings(0.3), "Withdraw", amount=0.1, fee=0.2) == {"left": 0}
    assert "error" in call(savings(0.3), "Withdraw", amount=0.1, fee=0.21)


@pytest.mark.parametrize("balance", [0.1 + 0.2, 0.00000012, 0.123456789, 1234567890.12, 1e-12, 12345678901.2345])
def test_a_number_is_stored_found_and_shown_as_it_was_given(balance: float) -> None:
    world = savings()
    call(world, "ChangeAccount", balance=balance, nickname=None)
    expected = 0.3 if balance == 0.1 + 0.2 else balance
    assert call(world, "GetAccount")["balance"] == expected
    found = world.call("Library.ListAccounts", {"balance": balance}, 0)["accounts"]
    assert [each["account_id"] for each in found] == ["A-1"]


def test_a_query_of_the_state_can_compare_a_decimal_sum() -> None:
    world = savings(0.1)
    query = "SELECT 1 AS n FROM Library.account WHERE decimal(balance + 0.2) = 0.3"
    assert StateDatabase(world.plans, world.beginning.initial).select(query, world.beginning.initial) == [{"n": 1}]


@pytest.mark.parametrize(
    ("computed", "expected"),
    [
        (0.1 + 0.2, 0.3),
        (41870.22 - 41870.12, 0.1),
        (0.1 * 3 - 0.3, 0),
        (1234567890.12 - 1234567000.02, 890.1),
        (0.5 - 1e-8, 0.49999999),
        (10 / 3, 3.333333),
        (2 / 3e5, 6.66667e-06),
        (1e300 * 1.1, 1.1e300),
        (1e22, 1e22),
    ],
)
def test_arithmetic_leaves_a_decimal_number(computed: float, expected: float) -> None:
    assert decimal(computed) == expected


@given(st.decimals(min_value=-(10**9), max_value=10**9, places=6), st.integers(0, 12))
def test_a_number_with_up_to_15_digits_stays_as_it_is(number: Any, digits: int) -> None:
    for given_number in (float(number), float(f"1.{'7' * digits}e-5")):
        assert decimal(given_number) == given_number
        assert decimal(decimal(given_number / 3)) == decimal(given_number / 3)


def test_zero_has_no_sign() -> None:
    assert str(decimal(-0.0)) == "0.0"


# ---- null


def test_a_required_member_that_may_be_null_is_null_without_a_value() -> None:
    world = savings(nickname=None)
    assert call(world, "GetAccount") == {"account_id": "A-1", "balance": 0.3, "nickname": None}
    assert world.call("Library.ListAccounts", {}, 0) == {"accounts": [{"account_id": "A-1", "nickname": None}]}
    assert world.beginning.initial["Library"]["account"][0]["nickname"] is None


def test_a_model_can_change_a_row_whose_required_field_is_null() -> None:
    world = savings(nickname=None)
    assert world.edit("Library", [StateEdit(change="change", entity="account", key="A-1", values={"balance": 7})]) == []
    assert call(world, "GetAccount")["balance"] == 7


def test_null_removes_the_value_of_an_optional_argument_and_means_absent_elsewhere() -> None:
    world = savings(note="for the trip")
    call(world, "ChangeAccount", nickname=None)
    assert call(world, "GetAccount")["note"] == "for the trip"
    call(world, "ChangeAccount", nickname=None, note=None)
    assert call(world, "GetAccount") == {"account_id": "A-1", "balance": 0.3, **NAMED}
    assert [(each.before, each.after) for each in world.take_changes()] == [({"note": "for the trip"}, {})]
    assert len(world.call("Library.ListAccounts", {"nickname": None}, 0)["accounts"]) == 1
