"""Every page of sessions and runs in Chromium: it fits, is accessible, runs no foreign script, and has a keyboard."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pytest_toolemu.cli.ui import redirect_page
from pytest_toolemu.ui.application import UiServer
from tests.browser import click, expect, open_details, press
from tests.ui.applications import HOSTILE, NEWEST
from tests.ui.chromium.conftest import check_page, take_picture
from tests.ui.release_session import RELEASE


def test_sessions_show_their_outcomes_when_their_records_are_read(page: Any) -> None:
    expect(page).to_have_url(re.compile(r"/$"))  # the token has left the address
    expect(page.locator(".sessions a.pill")).to_have_count(8)
    expect(page.locator(".sessions tbody tr").first.locator("a.pill")).to_have_text(
        ["✕ 5 failed", "? 4 inconclusive", "✓ 4 passed"]
    )
    check_page(page)
    click(page.locator("#theme"))
    expect(page.locator("html")).to_have_css("color-scheme", "dark")
    press(page, "j", "Enter")
    page.wait_for_url(f"**/sessions/{NEWEST}/**")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_file_that_redirects_opens_the_application(browser: Any, served: UiServer, tmp_path: Path) -> None:
    """Browsers do not send every cookie after a redirect from a file."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(redirect_page(tmp_path, served.new_url()).as_uri())
    page.wait_for_url(f"{served.origin}/")
    expect(page.locator(".sessions a.pill").first).to_be_visible()
    context.close()


def test_every_page_switches_its_theme_once_at_a_click(page: Any) -> None:
    pages = (
        "/",
        "/live",
        f"/sessions/{RELEASE}/results",
        f"/label/{NEWEST}?annotator=eve&sample=1",
        "/playground/new?toolkit=BankManager",
    )
    for number, path in enumerate(pages):
        page.goto(path)
        click(page.locator("#theme"))
        expect(page.locator("html")).to_have_attribute("data-theme", ("dark", "light")[number % 2])


def test_results_have_charts_that_lead_to_runs(page: Any) -> None:
    page.set_viewport_size({"width": 1200, "height": 820})
    page.goto(f"/sessions/{RELEASE}/results#scores")
    expect(page.locator(".chart:visible canvas")).to_have_count(3)
    take_picture(page, "ui-results")
    open_details(page)
    check_page(page)
    middle = page.evaluate(
        """() => {
            const canvas = document.querySelector("canvas[data-table=shares-safety]");
            const chart = Chart.getChart(canvas);
            chart.resize();
            const bar = chart.getDatasetMeta(1).data[0];
            return {x: bar.x, y: (bar.y + bar.base) / 2};
        }"""
    )
    page.locator("canvas[data-table=shares-safety]").click(position=middle)
    page.wait_for_url("**/runs?agent=hasty&safety=0")
    expect(page.locator("#results [role=status]")).to_have_text("4 of 20 runs")


def test_runs_are_filtered_and_opened_by_keyboard(page: Any) -> None:
    page.set_viewport_size({"width": 1200, "height": 820})
    page.goto(f"/sessions/{RELEASE}/runs")
    take_picture(page, "ui-runs")
    page.select_option("select[name=outcome]", "failed")
    page.wait_for_url("**/runs?*outcome=failed*")
    expect(page.locator("#results [role=status]")).to_have_text("8 of 20 runs")
    check_page(page)
    press(page, "/")
    page.keyboard.type("gas bill")
    # The first letters find the same runs, and the focus would be lost with their table.
    expect(page.locator("#results .chip").first).to_contain_text("search: gas bill")
    expect(page.locator("#results [role=status]")).to_have_text("2 of 20 runs")
    press(page, "ArrowDown", "Enter")
    expect(page.locator(".position")).to_have_text("1 of 2 that match gas bill, failed")
    press(page, "j")
    expect(page.locator(".position")).to_have_text("2 of 2 that match gas bill, failed")
    press(page, "s")
    expect(page).to_have_url(re.compile(r"#step-2$"))
    take_picture(page, "ui-run")
    expect(page.locator(".unknown").first).to_be_visible()
    expect(page.locator(".plan").first).to_be_hidden()
    press(page, "u")
    expect(page.locator(".plan").first).to_be_visible()
    check_page(page)
    press(page, "p")
    expect(page.locator(".position")).to_have_text("1 of 2 that match gas bill, failed")
    press(page, "Escape")
    page.wait_for_url("**/runs?*q=gas+bill*")


def test_hostile_text_is_shown_and_not_executed(page: Any) -> None:
    page.goto(f"/sessions/{HOSTILE}/results")
    page.goto(f"/sessions/{HOSTILE}/runs")
    click(page.locator("[data-item][href*=hostile--]"))
    page.locator("article.transcript").wait_for()
    open_details(page)
    expect(page.locator(".messages .transcript")).to_have_count(1)
    expect(page.locator("article.transcript")).to_contain_text("<script>alert(1)</script>")
    check_page(page)
    expect(page.locator("script:not([src]), img, iframe, object, embed, [onerror], [style]")).to_have_count(0)
    expect(page.locator(".changes .rows th").first).to_have_css("overflow-wrap", "normal")  # not broken into letters
