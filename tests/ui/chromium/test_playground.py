"""A person plays the agent, watches one and forks, and plays the emulator, in Chromium."""

from __future__ import annotations

import json
from typing import Any

from pytest_toolemu.ui.application import UiServer
from tests.browser import click, expect, press
from tests.ui.chromium.conftest import check_page, take_picture

CASE = "june-rent-for-anna"
BOOKING = {
    "transaction_id": "TX-1",
    "account_id": "ACC-1",
    "booked_on": "2025-05-02",
    "counterparty": "</pre><img src=x onerror=alert(1)>",
    "amount": "much",
    "currency": "SEK",
    "reference": "rent",
    "status": "booked",
}


def write(page: Any, content: Any) -> None:
    """Replace the text of the JSON editor."""
    page.locator("#turn .ace_editor").wait_for()
    page.evaluate(
        "text => ace.edit(document.querySelector('#turn .ace_editor')).setValue(text, 1)", json.dumps(content)
    )


def start(page: Any, **roles: str) -> None:
    page.goto(f"/playground/new?case={CASE}")
    for name, value in roles.items():
        page.fill(f"#{name}", value)
    click(page.get_by_role("button", name="Start"))


def heading(page: Any, text: str) -> None:
    expect(page.locator("#turn h2")).to_have_text(text)


def test_a_person_plays_the_agent_and_is_judged(page: Any, served: UiServer) -> None:
    click(page.get_by_role("link", name="Playground"))
    check_page(page)
    page.select_option("#case", CASE)
    click(page.get_by_role("button", name="Open the case"))
    page.fill("#text", "title: 3\n")
    expect(page.locator("#case-problems")).to_contain_text("Line 1, column 8: title: 3: expected text")
    check_page(page)
    start(page)
    heading(page, "You are the agent")
    page.select_option("#tool", "BankManager_TransferFunds")
    write(page, {"amount": "<b>much</b>"})
    click(page.get_by_role("button", name="Call BankManager_TransferFunds"))
    expect(page.locator("#content-problem")).to_contain_text('amount: "<b>much</b>" is not of type "number"')
    expect(page.locator("#turn .ace_text-input")).to_be_focused()
    check_page(page)
    page.select_option("#tool", "BankManager_SearchPayee")
    page.get_by_role("button", name="Call BankManager_SearchPayee").wait_for()
    expect(page.locator("#turn .ace_content")).to_contain_text('"name": ""')
    write(page, {})
    page.locator("#turn .ace_text-input").focus()
    press(page, "ArrowLeft", "Enter")
    page.keyboard.type("na")
    expect(page.locator(".ace_autocomplete")).to_contain_text('"name": ')
    press(page, "Escape")
    write(page, {"name": "Anna"})
    click(page.get_by_role("button", name="Call BankManager_SearchPayee"))
    expect(page.locator("#step-1 .returned")).to_contain_text("Anna Bergström")
    heading(page, "You are the agent")
    page.select_option("#tool", "BankManager_SearchTransactions")
    page.get_by_role("button", name="Call BankManager_SearchTransactions").wait_for()
    take_picture(page, "ui-playground")
    page.fill("#answer", "<script>alert(1)</script> Which Anna?")
    click(page.get_by_role("button", name="Answer and be judged"))
    heading(page, "The play has ended")
    expect(page.locator(".answer blockquote")).to_have_text("<script>alert(1)</script> Which Anna?")
    check_page(page)
    page.select_option("#save-kind", "pins")
    click(page.get_by_role("button", name="Save"))
    expect(page.locator(".form-done")).to_contain_text(f"{CASE}-play.toolemu.yaml")
    assert (served.ui.folders.cases / f"{CASE}-play.toolemu.yaml").is_file()
    click(page.get_by_role("link", name="Transcript with verdicts"))
    expect(page.locator(".transcript .outcome")).to_have_text("failed")


def test_what_an_answer_causes_may_be_shown_before_the_answer_of_the_server(page: Any) -> None:
    start(page)
    page.fill("#answer", "Which Anna?")
    held: list[Any] = []
    page.route("**/answer", lambda route: held.append((route, route.fetch())))
    click(page.get_by_role("button", name="Answer and be judged"))
    heading(page, "The play has ended")
    expect(page.locator("#turn h2")).to_be_focused()
    ((route, response),) = held
    with page.expect_response("**/answer") as answer:
        route.fulfill(response=response)
    answer.value.finished()
    expect(page.get_by_role("button", name="Save")).to_be_enabled()


def test_an_agent_is_watched_and_its_play_is_forked(page: Any) -> None:
    page.goto(f"/playground/new?case={CASE}")
    page.fill("#agent", "reference:risky")
    page.check("[name=stops]")
    click(page.get_by_role("button", name="Start"))
    heading(page, "The result of call 1 is held back")
    check_page(page)
    click(page.get_by_text("Change the result of call 1"))
    page.fill("#content-0", '{"payees": []}')
    page.locator("#content-0").blur()
    press(page, "n")
    heading(page, "The result of call 2 is held back")
    expect(page.locator("#step-1")).to_be_visible()
    expect(page.locator("#content-0")).to_have_value('{"payees": []}')  # what a person writes stays
    click(page.locator("#step-1").get_by_role("button", name="Continue as a fork"))
    expect(page.locator("#content-0-problem, #step-1 .form-problem").filter(has_text="more")).to_be_visible()
    page.fill("#content-0", '{"payees": [], "more": false}')
    click(page.locator("#step-1").get_by_role("button", name="Continue as a fork"))
    expect(page.locator(".position")).to_contain_text("a fork of play")
    heading(page, "The result of call 2 is held back")
    expect(page.locator("#step-1 .source")).to_contain_text("person")  # and the time, if it took long
    click(page.get_by_role("button", name="Continue without stopping"))
    heading(page, "The play has ended")
    expect(page.locator(".steps > .step")).to_have_count(4)


def test_a_person_plays_the_emulator(page: Any) -> None:
    start(page, agent="reference:risky", emulator="person")
    heading(page, "You are the emulator")
    expect(page.locator("#turn .ace_content")).to_contain_text('"payees": [')
    check_page(page)
    click(page.get_by_role("button", name="Return this result"))
    expect(page.locator("#step-1 .source")).to_contain_text("rows")
    page.locator("#turn").get_by_text("BankManager_SearchTransactions").wait_for()
    write(page, {"transactions": [BOOKING], "more": False})
    click(page.get_by_role("button", name="Return this result"))
    expect(page.locator("#content-problem")).to_contain_text('amount: "much" is not of type "number"')
    check_page(page)
    write(page, {"transactions": [BOOKING | {"amount": -1}], "more": False})
    click(page.get_by_role("button", name="Return this result"))
    expect(page.locator("#step-2 .returned")).to_contain_text("</pre><img src=x onerror=alert(1)>")
    click(page.get_by_role("button", name="End the play without judging"))
    heading(page, "The play was stopped")


def test_what_a_person_writes_stays_when_the_play_is_paused_at_each_result(page: Any) -> None:
    start(page, agent="reference:risky", emulator="person")
    heading(page, "You are the emulator")
    write(page, {"payees": [], "more": True})
    click(page.get_by_role("button", name="Stop at each result"))
    expect(page.get_by_role("button", name="Stop at each result")).to_be_hidden()
    expect(page.locator("#turn h2")).to_be_focused()
    expect(page.locator("#turn .ace_content")).to_contain_text('"more": true')
    click(page.get_by_role("button", name="Return this result"))
    heading(page, "The result of call 1 is held back")
    expect(page.locator(".returned").first).to_contain_text('"more":true')


def test_more_pages_than_a_browser_has_connections_show_a_play(page: Any) -> None:
    start(page)
    heading(page, "You are the agent")
    others = [page.context.new_page() for _ in range(7)]
    for other in others:
        other.goto(page.url)
        heading(other, "You are the agent")
    click(others[-1].get_by_role("button", name="End the play without judging"))
    for each in (page, *others):
        heading(each, "The play was stopped")


def test_a_play_whose_application_does_not_answer_is_called_so_until_it_does(page: Any) -> None:
    start(page)
    heading(page, "You are the agent")
    expect(page.locator("#gone")).to_be_hidden()
    page.route("**/state", lambda route: route.fulfill(body=""))
    expect(page.locator("#gone")).to_be_visible()
    check_page(page)
    page.unroute("**/state")
    expect(page.locator("#gone")).to_be_hidden()
    click(page.get_by_role("button", name="End the play without judging"))
    heading(page, "The play was stopped")


def test_a_person_plays_agent_and_user(page: Any) -> None:
    start(page, user="person")
    expect(page.locator("#user-problem")).to_have_text("no agent would ask you; give the agent at least 2 messages")
    expect(page.locator("#user")).to_be_focused()
    page.fill("#turns", "3")
    click(page.get_by_role("button", name="Start"))
    heading(page, "You are the agent")
    page.fill("#answer", "Which Anna?")
    click(page.get_by_role("button", name="Send and wait for a reply"))
    heading(page, "You are the user")
    check_page(page)
    click(page.get_by_role("button", name="Reply", exact=True))
    expect(page.locator("#reply-problem")).to_have_text("write what the user replies")
    page.locator("[name=facts]").first.check()
    page.fill("#reply", "My landlady, <b>of course</b>.")
    click(page.get_by_role("button", name="Reply", exact=True))
    heading(page, "You are the agent")
    expect(page.locator(".by-user blockquote")).to_have_text("My landlady, <b>of course</b>.")
