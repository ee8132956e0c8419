"""A running session in Chromium: it changes without a reload, and keeps the focus."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.sessions.live_session import remove_live, write_live
from pytest_toolemu.sessions.store import RunStore
from pytest_toolemu.ui.application import UiServer
from tests.browser import click, expect, press
from tests.reporting.runs import run, session
from tests.ui.chromium.conftest import check_page, take_picture
from tests.ui.live_sessions import CASES, DEAD, PROGRESS, process, write_running

NAME = "20261119-101010-0a1b2c3d4e5f6"


@pytest.fixture
def folder(served: UiServer) -> Iterator[Path]:
    """Yield the folder of a session that appears to run."""
    path = session(served.ui.directory / NAME, run("lunch"), run("loan", safety=0))
    write_running(path)
    yield path
    delete(path)


def delete(path: Path) -> None:
    """Delete a session, in whose folder the server may be writing: it leaves the run directory first."""
    shutil.rmtree(path.rename(path.parents[1] / "deleted"))


def test_a_session_is_watched_until_it_dies(page: Any, folder: Path) -> None:
    page.goto("/")
    mark = page.locator("a.pill.even")
    expect(mark).to_have_text("▶ running, 12 of 298")
    check_page(page)
    write_live(folder, process(progress=PROGRESS.model_copy(update={"completed": 13})))
    expect(mark).to_have_text("▶ running, 13 of 298")
    click(mark)
    expect(page.locator("#live .big")).to_have_text("13 of 298 cases done")
    expect(page.locator("[aria-label='Cases in flight'] li")).to_have_count(4)
    check_page(page)
    take_picture(page, "ui-live")
    # The page is replaced every second: a link keeps the focus, and nothing else moves.
    page.locator("[aria-label='Last finished'] a").last.focus()
    name = page.evaluate("document.activeElement.id")
    top = page.evaluate("document.activeElement.getBoundingClientRect().top")
    write_live(folder, process(progress=PROGRESS.model_copy(update={"completed": 150})))
    write_live(folder, process("gw0", cases=(*CASES[1:], CASES[0].model_copy(update={"case": "tram"}))))
    expect(page.locator("#live .big")).to_have_text("150 of 298 cases done")
    expect(page.locator("#announcement")).to_have_text("50 % of 298 cases done, 2 failed.")
    expect(page.locator(f"[id='{name}']")).to_be_focused()
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") == top
    RunStore(folder).put(run("newest"))
    expect(page.locator("[aria-label='Last finished'] li").first).to_contain_text("newest")
    # As if the server had ended, and then answered again.
    page.evaluate("document.dispatchEvent(new CustomEvent('htmx:sendError'))")
    expect(page.locator("#gone")).to_be_hidden()
    write_live(folder, process(progress=PROGRESS, started=DEAD))
    expect(page.locator("#announcement")).to_have_text("The session's process has died.")
    expect(page.locator("#live pre")).to_have_text(PROGRESS.resume)
    page.evaluate("document.dispatchEvent(new CustomEvent('htmx:sendError'))")
    expect(page.locator("#gone")).to_be_visible()
    check_page(page)


def test_a_page_whose_session_is_deleted_says_so(page: Any, served: UiServer) -> None:
    path = session(served.ui.directory / NAME, run("lunch"))
    try:
        write_running(path)
        page.goto(f"/sessions/{NAME}/live")
        expect(page.locator("#live .big")).to_have_text("12 of 298 cases done")
    finally:
        delete(path)
    expect(page.locator("#live h2").first).to_have_text("This session was deleted")
    expect(page.locator("#announcement")).to_have_text("The session was deleted.")
    check_page(page)


def test_the_list_shows_sessions_as_they_appear_and_keeps_the_focus(page: Any, served: UiServer) -> None:
    page.goto("/")
    expect(page.locator(".sessions a.pill")).to_have_count(8)
    press(page, "j")
    expect(page.locator("[data-item]:focus")).to_have_count(1)
    focused = page.evaluate("document.activeElement.id")
    path = session(served.ui.directory / NAME, run("lunch"))
    try:
        row = page.locator("tr", has_text=NAME)
        expect(row.locator("a.pill.passed")).to_have_text("✓ 1 passed")
        expect(page.locator("#session-count")).to_have_text("4 sessions")
        write_running(path)
        expect(row.locator("a.pill.even")).to_have_text("▶ running, 12 of 298")
        expect(page.locator(f"[id='{focused}']")).to_be_focused()
    finally:
        delete(path)
    expect(row).to_have_count(0)
    expect(page.locator(f"[id='{focused}']")).to_be_focused()


def test_the_page_without_a_session_leads_to_the_next_one(page: Any, served: UiServer) -> None:
    page.goto("/live")
    expect(page.locator("h1")).to_have_text("No session is running")
    check_page(page)
    path = session(served.ui.directory / NAME, run("lunch"))
    try:
        write_running(path)
        page.wait_for_url(f"**/sessions/{NAME}/live")
        expect(page.locator("#live .big")).to_have_text("12 of 298 cases done")
        page.goto("/")
    finally:
        delete(path)


def test_the_list_counts_the_runs_when_a_session_has_ended(page: Any, folder: Path) -> None:
    page.goto("/")
    row = page.locator("tr", has_text=NAME)
    expect(row.locator("a.pill.even")).to_have_text("▶ running, 12 of 298")
    expect(row.locator("a.pill")).to_have_count(3)
    RunStore(folder).put(run("newest"))
    remove_live(folder)
    expect(row.locator("a.pill.even")).to_have_count(0)
    expect(row.locator("a.pill.passed")).to_have_text("✓ 2 passed")
