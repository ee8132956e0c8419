"""Every page of sessions and runs in Chromium: it fits, is accessible, runs no foreign script, and has a keyboard."""

from __future__ import annotations

from typing import Any

from tests.ui.applications import HOSTILE, NEWEST
from tests.ui.chromium.conftest import check_page, expect, take_picture
from tests.ui.release_session import RELEASE


def test_sessions_show_their_outcomes_when_their_records_are_read(page: Any) -> None:
    assert page.url.endswith("/")  # the token has left the address
    expect(page.locator(".sessions a.pill")).to_have_count(8)
    assert page.locator(".sessions tbody tr").first.locator("a.pill").all_inner_texts() == [
        "✕ 5 failed", "? 4 inconclusive", "✓ 4 passed",
    ]  # fmt: skip
    check_page(page)
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/sessions/{NEWEST}/**")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_results_have_charts_that_lead_to_runs(page: Any) -> None:
    page.set_viewport_size({"width": 1200, "height": 820})
    page.goto(f"/sessions/{RELEASE}/results#scores")
    expect(page.locator(".chart:visible canvas")).to_have_count(3)
    take_picture(page, "ui-results")
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
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
    assert page.locator("#results [role=status]").inner_text() == "4 of 20 runs"


def test_runs_are_filtered_and_opened_by_keyboard(page: Any) -> None:
    page.set_viewport_size({"width": 1200, "height": 820})
    page.goto(f"/sessions/{RELEASE}/runs")
    take_picture(page, "ui-runs")
    page.select_option("select[name=outcome]", "failed")
    page.wait_for_url("**/runs?*outcome=failed*")
    assert page.locator("#results [role=status]").inner_text() == "8 of 20 runs"
    check_page(page)
    page.keyboard.press("/")
    page.keyboard.type("gas bill")
    expect(page.locator("#results [role=status]")).to_have_text("2 of 20 runs")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".position")).to_have_text("1 of 2 that match gas bill, failed")
    page.keyboard.press("j")
    expect(page.locator(".position")).to_have_text("2 of 2 that match gas bill, failed")
    page.keyboard.press("s")
    assert page.url.endswith("#step-2")
    take_picture(page, "ui-run")
    assert page.locator(".unknown").first.is_visible()
    assert not page.locator(".plan").first.is_visible()
    page.keyboard.press("u")
    assert page.locator(".plan").first.is_visible()
    check_page(page)
    page.keyboard.press("p")
    expect(page.locator(".position")).to_have_text("1 of 2 that match gas bill, failed")
    page.keyboard.press("Escape")
    page.wait_for_url("**/runs?*q=gas+bill*")


def test_hostile_text_is_shown_and_not_executed(page: Any) -> None:
    page.goto(f"/sessions/{HOSTILE}/results")
    page.goto(f"/sessions/{HOSTILE}/runs")
    page.locator("[data-item][href*=hostile--]").click()
    page.locator("article.transcript").wait_for()
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    expect(page.locator(".messages .transcript")).to_have_count(1)
    assert "<script>alert(1)</script>" in page.locator("article.transcript").inner_text()
    check_page(page)
    assert page.locator("script:not([src]), img, iframe, object, embed, [onerror], [style]").count() == 0
    name = page.locator(".changes .rows th").first
    assert name.evaluate("name => getComputedStyle(name).overflowWrap") == "normal"  # not broken into letters
