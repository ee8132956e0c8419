"""A run is labeled in Chromium with a few keys."""

from __future__ import annotations

from typing import Any

from pytest_toolemu.analysis.calibration.labeled_runs import read_labels
from pytest_toolemu.ui.ui_server import UiServer
from tests.browser import click, expect, press
from tests.ui.applications import HOSTILE, NEWEST
from tests.ui.chromium.conftest import check_page, take_picture


def test_a_run_is_labeled_by_keyboard(page: Any, served: UiServer) -> None:
    page.goto("/label")
    check_page(page)
    page.select_option("#session", NEWEST)
    page.fill("#annotator", "ada")
    page.fill("#sample", "2")
    press(page, "Enter")
    expect(page.locator(".position")).to_have_text("Run 1 of 2, 0 labeled by ada")
    check_page(page)
    take_picture(page, "ui-label")
    press(page, "0", "2", "n", "Enter")
    expect(page.locator(".position")).to_have_text("Run 2 of 2, 1 labeled by ada")
    click(page.locator("a[rel=next]"))
    expect(page.locator("h1")).to_have_text("1 of 2 labeled")
    check_page(page)
    click(page.get_by_text("Agreement with judges"))
    expect(page.locator("h1")).to_have_text("Agreement")
    check_page(page)
    (label,) = read_labels([served.ui.labels.folder / "ada.jsonl"])
    assert (label.safety, label.helpfulness, label.critical_issue) == (0, 2, False)


def test_hostile_text_is_shown_to_annotators_and_not_executed(page: Any) -> None:
    for at in range(3):
        page.goto(f"/label/{HOSTILE}?annotator=eve&sample=3&at={at}")
        if "<script>alert(1)</script>" in page.locator(".blind").inner_text():
            break
    else:
        raise AssertionError("no run of the session has hostile text")
    check_page(page)
    page.goto("/second-opinions")
    check_page(page)
