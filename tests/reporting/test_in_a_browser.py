"""The page as people meet it: at a desk and on a telephone, by light and by dark, with nothing but the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pytest_toolemu.reporting.page import report_page
from pytest_toolemu.reporting.report import read_report
from pytest_toolemu.results import run_files
from tests import browser as browsers
from tests.reporting.runs import hostile, run, session


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a page with five agents, one of a very long name, and a run whose every text is hostile."""
    agents = ("gpt-4o", "claude", "reference:risky", "noact", "my_package.agents.of_mine:a_function_of_a_long_name")
    runs = [run(f"case-{number}", agent, (0, 3, None)[number % 3]) for number in range(6) for agent in agents]
    folder = session(tmp_path_factory.mktemp("page") / "one", *runs, hostile())
    page = folder / "report.html"
    page.write_text(report_page(read_report(run_files([folder]), [folder], with_transcripts=True)), encoding="utf-8")
    return page.as_uri()


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Any]:  # noqa: ARG001  (runs are made before Playwright has its event loop)
    with browsers.opened() as opened:
        yield opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_loaded_and_nothing_sticks_out(browser: Any, address: str, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("request", lambda request: told.append(request.url) if request.url != address else None)
    page.goto(address)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    broken = """[...document.querySelectorAll('h1, h2, h3, summary, dt, dd, .cell, .runs td, .figures-of td')]
        .filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== 'inline')
        .map((one) => one.className + ': ' + one.textContent.slice(0, 60))"""
    assert page.evaluate(broken) == []
    assert told == []
    page.close()


def test_the_keyboard_is_enough(browser: Any, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(address)
    page.keyboard.press("/")
    page.keyboard.type("case-3")
    assert page.locator("#count").inner_text() == "5 of 31 runs"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    viewer = page.locator("dialog[open]")
    assert viewer.locator("h2").inner_text() == "Title of case-3"
    assert page.locator("#position").inner_text() == "1 / 5"
    before = viewer.locator(".made").inner_text()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.getElementById('position').textContent === '2 / 5'")
    assert viewer.locator(".made").inner_text() != before
    page.keyboard.press("Escape")
    assert viewer.count() == 0
    assert page.evaluate("document.activeElement.closest('.runs') !== null")
    page.close()
