"""Chromium, driven by Playwright. If one of the two is missing, tests that need a browser are skipped with the reason.

Pages change after a click or a key has returned. So tests look at pages with ``expect``, which waits, and use them with
``click``, ``press``, and ``open_details``, which wait for the scripts of the page.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

_FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")


@contextmanager
def opened() -> Iterator[Any]:
    """Open a browser without a window."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))
        yield browser
        browser.close()


def expect(subject: Any) -> Any:
    """Return assertions about a page or a locator that wait."""
    from playwright.sync_api import expect as playwright_expect

    # On a busy machine, a page may need longer than the default of 5 s.
    playwright_expect.set_options(timeout=30_000)
    return playwright_expect(subject)


def click(element: Any) -> None:
    """Click an element when the scripts of its page have run."""
    element.wait_for()
    element.page.wait_for_load_state()
    element.click()


def open_details(page: Any) -> None:
    """Open everything that can be opened when the scripts of the page have run."""
    page.wait_for_load_state()
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")


def press(page: Any, *keys: str) -> None:
    """Press keys when the scripts of the page have run. A page that shows its text may not have read them yet."""
    for key in keys:
        page.wait_for_load_state()
        page.keyboard.press(key)


def overflow(page: Any) -> int:
    """Return by how many pixels a page is wider than its window, once charts and tables have taken its width."""
    pixels: int = page.evaluate(
        """async () => {
            const root = document.documentElement, extra = () => root.scrollWidth - root.clientWidth;
            for (let frame = 0; frame < 60 && extra() > 0; frame++) await new Promise(requestAnimationFrame);
            return extra();
        }"""
    )
    return pixels
