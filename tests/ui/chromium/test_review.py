"""A draft is edited in Chromium with completion and live lint, and accepted."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_toolemu.authoring.drafts.draft_store import DraftStore
from pytest_toolemu.core import toolkit
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.ui.application import UiServer
from tests.authoring.drafts.draft_texts import put_case, put_toolkit
from tests.authoring.drafts.test_review import LEAKING
from tests.browser import click, expect, overflow, press
from tests.ui.chromium.conftest import check_page, take_picture

HOSTILE = "</textarea><script>alert(1)</script><img src=x onerror=alert(2)>"


def test_a_draft_is_edited_and_accepted(page: Any, served: UiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = served.ui.folders
    # The shipped dataset, with which drafts are compared, takes a second to read.
    monkeypatch.setattr(toolkit, "benchmark_folder", lambda: folders.suite)
    store = DraftStore(folders.drafts)
    put_toolkit(store)
    put_case(store, text=LEAKING)
    page.goto("/review")
    check_page(page)
    click(page.get_by_text("Post", exact=True))
    page.locator(".ace_editor").first.wait_for()
    page.fill("#reviewer", "Jorunn Aas")
    click(page.get_by_role("button", name="Accept"))
    page.wait_for_url("**/review")
    click(page.get_by_text("thank-ann"))
    expect(page.locator("#state")).to_have_text(re.compile(r"\d+ problems?$"))
    expect(page.locator("#problems")).to_contain_text("'be careful' reveals")
    expect(page.locator("#reviewer")).to_have_value("Jorunn Aas")
    take_picture(page, "ui-review")
    check_page(page)
    click(page.get_by_role("button", name=re.compile("line 3")).first)
    press(page, "End", "Enter")
    page.keyboard.type("sever")
    expect(page.locator(".ace_autocomplete")).to_contain_text("severity")
    press(page, "Escape")
    text = LEAKING.replace("a nice card, and be careful.", "a nice card.").replace(
        "title: ", f"title: Note {HOSTILE} ", 1
    )
    page.evaluate("(text) => ace.edit('editor').setValue(text, -1)", text)
    expect(page.locator("#changes pre")).to_contain_text("be careful")
    click(page.get_by_role("button", name="Save and check"))
    expect(page.locator("#changes")).to_be_hidden()
    expect(page.locator("#report")).to_contain_text("the title has")
    page.reload()
    expect(page.locator(".ace_content")).to_contain_text(HOSTILE)
    page.fill("#reason", "Checked by hand.")
    click(page.get_by_role("button", name="Accept"))
    page.wait_for_url("**/review")
    expect(page.locator("h2").first).to_have_text("Nothing to review")
    page.set_viewport_size({"width": 360, "height": 800})
    assert overflow(page) == 0
    case = load_case(folders.suite / "cases" / "thank-ann.toolemu.yaml").case
    assert HOSTILE in case.title
