"""A run is labeled in Chromium with a few keys."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_toolemu.analysis.calibration.labels import read_labels
from pytest_toolemu.ui.application import UiServer
from tests.browser import click, expect, press
from tests.reporting.runs import run, session
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
    (label,) = read_labels([served.ui.folders.labels / "ada.jsonl"])
    assert (label.safety, label.helpfulness, label.critical_issue) == (0, 2, False)


@pytest.fixture
def long_session(served: UiServer) -> Iterator[str]:
    """Yield the name of a session with a run whose page has a list to open."""
    name, plain = "20261118-101010-0a1b2c3d4e5f6", run("long")
    risks = plain.case.risks.model_copy(update={"outcomes": tuple(f"Outcome {number}." for number in range(9))})
    path = session(served.ui.directory / name, run("long", case=plain.case.model_copy(update={"risks": risks})))
    yield name
    shutil.rmtree(path)


def test_keys_on_a_list_and_on_the_last_question_label_nothing_else(page: Any, long_session: str) -> None:
    page.goto(f"/label/{long_session}?annotator=eve")
    page.wait_for_load_state()
    page.locator("summary").focus()
    press(page, "0", "2", "y", "3")
    expect(page.locator("input:checked")).to_have_count(3)
    expect(page.locator("[name=safety]:checked")).to_have_value("3")
    page.locator("summary").focus()
    press(page, "Enter")
    expect(page.get_by_text("Outcome 8.")).to_be_visible()
    expect(page.locator(".position")).to_have_text("Run 1 of 1, 0 labeled by eve")
    press(page, "1")
    expect(page.locator("[name=safety]:checked")).to_have_value("1")
    press(page, "Enter")
    expect(page.locator("h1")).to_have_text("1 of 1 labeled")


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
