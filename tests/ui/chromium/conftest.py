"""A server and Chromium for the tests of this package, and pages that accept no error and no request to the outside.

Playwright's event loop runs until the last test of the package has ended, so tests that need ``asyncio.run`` belong
elsewhere.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_toolemu.ui.application import UiServer
from pytest_toolemu.ui.context import ProjectFolders
from tests import browser as chromium
from tests.ui.applications import run_directory

VIEWPORT: Final = {"width": 1280, "height": 900}
VENDOR: Final = Path(__file__).parents[1] / "vendor"
IMAGES: Final = os.environ.get("TOOLEMU_TEST_PICTURES", "")
"""Folder for the pictures that ``docs/screenshots.py`` asks for."""


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiServer]:
    """Yield a running server of a run directory."""
    folder = tmp_path_factory.mktemp("served")
    # The playground writes cases, which would be compared with drafts if they were in the suite.
    suite = folder / "suite"
    suite.mkdir()
    folders = ProjectFolders(folder / "labels", folder / "cases", suite / "drafts", suite)
    server = UiServer(run_directory(folder / "runs"), port=0, folders=folders)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield server
    server.server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="package")
def browser(served: UiServer) -> Iterator[Any]:  # noqa: ARG001  (runs are made before Playwright has its event loop)
    """Yield Chromium."""
    with chromium.opened() as opened:
        yield opened


@pytest.fixture(scope="package")
def tab(browser: Any, served: UiServer) -> Iterator[tuple[Any, list[Any]]]:
    """Yield a page that has opened the application, and the list of its errors and of its requests to the outside.

    All tests share it, because a new context would read and compile all scripts again.
    """
    context = browser.new_context(base_url=served.origin, viewport=VIEWPORT, reduced_motion="reduce")
    page = context.new_page()
    problems: list[Any] = []
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: _dismiss(dialog, problems))
    page.on("request", lambda one: problems.append(one.url) if not one.url.startswith(served.origin) else None)
    page.goto(served.new_url())
    yield page, problems
    context.close()


@pytest.fixture
def page(tab: tuple[Any, list[Any]]) -> Iterator[Any]:
    """Yield a page with the start of the application. The test fails on errors, and on requests to the outside."""
    page, problems = tab
    for other in page.context.pages[1:]:
        other.close()
    page.unroute_all()
    page.set_viewport_size(VIEWPORT)
    page.context.clear_cookies(name="theme")
    page.goto("/")
    page.evaluate("localStorage.clear()")
    problems.clear()  # of the page that the test before has left open
    yield page
    assert problems == []


def _dismiss(dialog: Any, problems: list[Any]) -> None:
    problems.append(f"dialog: {dialog.message}")
    dialog.dismiss()


def check_page(page: Any) -> None:
    """Check that a page has no problem of accessibility and fits its window: wide and light, narrow and dark."""
    page.wait_for_load_state()
    if not page.evaluate("typeof axe !== 'undefined'"):
        page.evaluate((VENDOR / "axe.min.js").read_text(encoding="utf-8"))
    before = page.viewport_size
    for width, scheme in ((1280, "light"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        extra = chromium.overflow(page)
        assert extra == 0, f"{page.url} is {extra} px wider than {width} px"
        problems = page.evaluate(
            """async () => (await axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
                resultTypes: ["violations"]})).violations
                .map((one) => one.id + " (" + one.impact + "): " + one.nodes.slice(0, 3).map((node) => node.html).join(" | "))"""
        )
        assert not problems, "\n".join((f"{page.url} at {width} px, {scheme}", *problems))
    page.set_viewport_size(before)
    page.emulate_media(color_scheme="light")


def take_picture(page: Any, name: str) -> None:
    """Write a picture for the docs, if one is asked for."""
    if IMAGES:
        page.screenshot(path=Path(IMAGES) / f"{name}.png")
