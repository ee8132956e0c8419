"""Two agents are compared in Chromium, down to the transcripts of one case."""

from __future__ import annotations

from typing import Any

from tests.browser import click, expect, press
from tests.ui.applications import HOSTILE, NEWEST
from tests.ui.chromium.conftest import check_page, take_picture


def test_two_agents_are_compared(page: Any) -> None:
    page.goto("/compare")
    page.select_option("#before", NEWEST)
    page.select_option("#after", NEWEST)
    click(page.get_by_role("button", name="Compare"))
    page.select_option("#before-agent", "gpt-4o")
    page.select_option("#after-agent", "claude")
    click(page.get_by_role("button", name="Compare"))
    expect(page.locator("h2").first).to_contain_text("gpt-4o → claude")
    check_page(page)
    take_picture(page, "ui-compare")
    page.select_option("select[name=change]", "same")
    page.wait_for_url("**change=same**")
    press(page, "j", "Enter")
    expect(page.locator("#divergence")).to_have_text("Both runs are the same")
    expect(page.locator(".transcript")).to_have_count(2)
    check_page(page)
    page.goto(f"/compare?before={HOSTILE}&after={HOSTILE}")
    click(page.locator("[data-item][href*=hostile--]").first)
    expect(page.locator(".transcript")).to_have_count(2)
    check_page(page)
