"""The HTML report in a browser: on a desktop and on a phone, in light and dark mode, and by keyboard only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pytest_toolemu.core.world.state_changes import StateChange
from pytest_toolemu.reporting.html_report import comparison_page, report_page
from pytest_toolemu.reporting.report_data import read_report
from pytest_toolemu.sessions.store import run_files
from tests import browser as chromium
from tests.browser import expect, open_details, overflow, press
from tests.dialogue.landlady import rent_run, silent, talker
from tests.reporting.runs import HOSTILE, hostile, run, session, trap


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a page with five agents, one with a very long name, and a run with hostile text."""
    agents = ("gpt-4o", "claude", "reference:risky", "noact", "my_package.agents.customer_service:agent_with_long_name")
    runs = [run(f"case-{number}", agent, (0, 3, None)[number % 3]) for number in range(6) for agent in agents]
    folder = session(tmp_path_factory.mktemp("page") / "one", *runs, hostile())
    page = folder / "report.html"
    page.write_text(report_page(read_report(run_files([folder]), [folder], with_transcripts=True)), encoding="utf-8")
    return page.as_uri()


@pytest.fixture(scope="module")
def address_of_changes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of the comparison of a run that asks the user with one that does not."""
    folder = tmp_path_factory.mktemp("changes")
    agents = {"before": talker("Which Anna?"), "after": silent}
    sides = [session(folder / name, rent_run(folder, agent)) for name, agent in agents.items()]
    page = folder / "changes.html"
    page.write_text(comparison_page(*sides), encoding="utf-8")
    return page.as_uri()


WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def page(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield the page that all tests share; each opens another address in it."""
    for pages in ("address", "address_of_changes"):  # runs are made before Playwright has its event loop
        request.getfixturevalue(pages)
    with chromium.opened() as browser:
        yield browser.new_page()


def set_width(page: Any, width: int = WIDTHS[0]) -> None:
    page.set_viewport_size({"width": width, "height": 900})


def test_the_page_loads_nothing_and_fits_the_window(page: Any, address: str) -> None:
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if request.url != address else None)
    page.goto(address)
    open_details(page)
    clipped = """[...document.querySelectorAll('h1, h2, h3, summary, dt, dd, .cell, .runs td, .slice-metrics td')]
        .filter((element) => element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).display !== 'inline')
        .map((element) => element.className + ': ' + element.textContent.slice(0, 60))"""
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            set_width(page, width)
            page.emulate_media(color_scheme=scheme)
            assert (scheme, width, overflow(page)) == (scheme, width, 0)
            assert (scheme, width, page.evaluate(clipped)) == (scheme, width, [])
    assert problems == []


def test_runs_can_be_searched_opened_and_closed_by_keyboard(page: Any, address: str) -> None:
    set_width(page)
    page.goto(address)
    press(page, "/")
    page.keyboard.type("case-3")
    expect(page.locator("#count")).to_have_text("5 of 31 runs")
    press(page, "ArrowDown", "Enter")
    viewer = page.locator("dialog[open]")
    expect(viewer.locator("h2")).to_have_text("Title of case-3")
    expect(page.locator("#position")).to_have_text("1 / 5")
    before = viewer.locator(".outcome-line").inner_text()
    press(page, "ArrowRight")
    expect(page.locator("#position")).to_have_text("2 / 5")
    expect(viewer.locator(".outcome-line")).not_to_have_text(before, use_inner_text=True)
    press(page, "Escape")
    viewer.wait_for(state="detached")
    expect(page.locator(".runs :focus")).to_have_count(1)


@pytest.fixture(scope="module")
def address_of_many_agents(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a page with 27 agents; the third has no safety verdict."""
    scores = (3, 0, None)
    runs = [
        run(f"case-{case}", f"agent-{agent}", (scores[agent] if agent < 3 else (0, 3)[case < agent % 5]))
        for agent in range(27)
        for case in range(4)
    ]
    folder = session(tmp_path_factory.mktemp("many") / "one", *runs)
    page = folder / "report.html"
    page.write_text(report_page(read_report(run_files([folder]), [folder], with_transcripts=True)), encoding="utf-8")
    return page.as_uri()


def expect_sorted_by(page: Any, title: str, order: str) -> None:
    """Wait until only the heading of this title states a sort order, and it is this one."""
    expect(page.locator(".sortable thead th[aria-sort]")).to_have_text([title])
    expect(page.locator(".sortable thead th[aria-sort]")).to_have_attribute("aria-sort", order)


def column(page: Any, title: str) -> list[str]:
    """Return the sort keys of the cells below a heading, from the top."""
    return list(
        page.evaluate(
            """title => {
                const table = document.querySelector(".sortable"), heads = [...table.tHead.rows[0].cells];
                const index = heads.findIndex((head) => head.textContent.trim() === title);
                return [...table.tBodies[0].rows].map((row) => row.cells[index].dataset.sort);
            }""",
            title,
        )
    )


def test_agents_are_sorted_by_keyboard_with_missing_values_last(address_of_many_agents: str, page: Any) -> None:
    set_width(page)
    page.goto(address_of_many_agents)
    expect_sorted_by(page, "Agent", "ascending")
    assert column(page, "Agent") == [f"agent-{number}" for number in range(27)]  # 10 after 9
    page.locator(".sortable thead button").first.focus()
    press(page, "Tab", "Tab")
    expect(page.locator(":focus")).to_have_text("Unsafe")
    for key, order in (("Enter", "ascending"), ("Space", "descending")):
        press(page, key)
        expect_sorted_by(page, "Unsafe", order)
        *values, last = column(page, "Unsafe")
        assert last == ""
        assert [float(value) for value in values] == sorted(map(float, values), reverse=order == "descending")
    assert column(page, "Agent")[-1] == "agent-2"
    expect(page.locator(":focus")).to_have_text("Unsafe")


def test_many_agents_share_one_table_that_scrolls_within_the_page(address_of_many_agents: str, page: Any) -> None:
    page.goto(address_of_many_agents)
    expect(page.locator("#agents table.sortable")).to_have_count(1)
    expect(page.locator("#agents .card")).to_have_count(0)
    expect(page.locator("#agents .spark")).to_have_count(26 + 26 + 27)  # agent-2 has no safety score
    keys = page.locator("#agents .key").evaluate_all("all => all.map((key) => key.innerHTML)")
    assert len(set(keys)) == 27
    for width in WIDTHS:
        set_width(page, width)
        assert (width, overflow(page)) == (width, 0)
        cells = page.locator(".grid .cell").evaluate_all("all => all.map((cell) => cell.clientHeight)")
        assert max(cells) < 80  # no number is wrapped within its digits


@pytest.fixture(scope="module")
def address_of_a_world(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a page with a run in a built world that has a wide table, a long cell, and a hostile one."""
    row = {f"field_{number}": f"value {number}" for number in range(15)} | {"id": "T-1", "text": "x" * 5_000}
    world = {"Kit": {"thing": ({**row, "note": HOSTILE},)}}
    change = StateChange(entity="Kit.thing", key="T-1", change="changed", before=row, after={"text": HOSTILE})
    one = run("world", safety=0)
    steps = tuple(step.model_copy(update={"changes": (change,)}) for step in one.steps)
    case = one.case.model_copy(update={"world": world})
    folder = session(
        tmp_path_factory.mktemp("world") / "one", run("world", safety=0, case=case, steps=steps, trap=trap())
    )
    page = folder / "report.html"
    page.write_text(report_page(read_report(run_files([folder]), [folder], with_transcripts=True)), encoding="utf-8")
    return page.as_uri()


def test_the_trap_is_hidden_until_opened_and_wide_tables_scroll(page: Any, address_of_a_world: str) -> None:
    page.goto(address_of_a_world)
    page.locator(".runs tbody th a").first.click()
    viewer = page.locator("dialog[open]")
    viewer.wait_for()  # it opens when the address has changed, which the click does not wait for
    expect(viewer.locator(".verdict .finding").first).to_have_text("Likely Severe Risk step 2", use_inner_text=True)
    expect(viewer.locator(".trap dl")).to_be_hidden()
    viewer.locator(".trap summary").click()
    expect(viewer.locator(".trap dl")).to_be_visible()
    page.evaluate("document.querySelectorAll('dialog details').forEach((details) => { details.open = true; })")
    for width in WIDTHS:
        set_width(page, width)
        assert viewer.evaluate("dialog => dialog.scrollWidth - dialog.clientWidth") == 0
        assert viewer.locator(".scroll").evaluate("table => table.scrollWidth > table.clientWidth")
        heights = viewer.locator(".rows td > *").evaluate_all("cells => cells.map((cell) => cell.clientHeight)")
        assert max(heights) < 300


def test_two_transcripts_are_marked_where_one_run_asks_and_the_other_acts(page: Any, address_of_changes: str) -> None:
    page.goto(address_of_changes)
    page.locator(".runs tbody th a").first.click()
    text = "One run continues at message 1 to the user, and the other at step 1."
    expect(page.locator("dialog[open] #divergence")).to_have_text(text)
    expect(page.locator("dialog .divergent")).to_have_count(2)
