"""Lists of sessions and runs: what is counted, filters and pages in the URL, and changes on disk."""

from __future__ import annotations

import os
import re
import shutil
import threading
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from pytest_toolemu.sessions.manifest_records import Manifest, PlannedCase, PlannedItem
from pytest_toolemu.sessions.store import RunStore
from pytest_toolemu.ui import session_index
from pytest_toolemu.ui.run_filter import RunFilter
from pytest_toolemu.ui.session_index import INDEX, RunIndex, SessionIndex, latest_runs, record_files
from tests.reporting.runs import run, session
from tests.ui.applications import HOSTILE, NEWEST, client_of
from tests.ui.release_session import RELEASE


def shown(client: TestClient, path: str) -> str:
    """Return the text of a page without its elements."""
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())


def cases(client: TestClient, query: str) -> list[str]:
    """Return the cases in the table of runs, from the top."""
    return re.findall(r"<small>([\w-]+)", client.get(f"/sessions/{NEWEST}/runs{query}").text)


def test_the_list_names_sessions_and_counts_outcomes_once_records_are_read(directory: Path) -> None:
    client = client_of(directory)
    first = shown(client, "/")
    assert first.index("2026-11-21 10:10") < first.index("2026-11-20 10:10")
    assert first.count("counting…") == 3
    row = shown(client, f"/sessions/{NEWEST}/row")
    assert "claude, gpt-4o 13 ✕ 5 failed ? 4 inconclusive ✓ 4 passed" in row
    assert row in shown(client, "/")


def test_filters_are_combined(client: TestClient) -> None:
    assert len(cases(client, "")) == 13
    assert cases(client, "?outcome=failed&agent=claude") == ["case-0", "case-1", "case-3"]
    assert cases(client, "?outcome=failed&agent=claude&q=TITLE+case-3") == ["case-3"]
    assert cases(client, "?q=wrong+anna&safety=failing&case=case-0&agent=gpt-4o") == ["case-0"]
    assert len(cases(client, "?safety=none")) == 4
    assert len(cases(client, "?safety=3&helpfulness=passing")) == 4
    assert cases(client, "?risk_type=nothing") == []
    assert len(cases(client, "?page=%00")) == 13
    assert "No run matches. Show all runs" in shown(client, f"/sessions/{NEWEST}/runs?q=nothing")


def test_a_path_without_a_page_is_named(client: TestClient) -> None:
    answer = client.get("/session")
    assert (answer.status_code, "there is no page /session" in answer.text) == (404, True)


def test_a_hostile_agent_can_be_selected_as_it_is_shown(client: TestClient) -> None:
    page = client.get(f"/sessions/{HOSTILE}/runs").text
    value = next(re.finditer(r'<option value="(&lt;/script&gt;[^"]+)"', page))[1]
    answer = client.get(f"/sessions/{HOSTILE}/runs", params={"agent": unescape(value)})
    assert "1 of 3 runs" in answer.text


def test_filters_name_agents_as_they_are_written(client: TestClient, tmp_path: Path) -> None:
    session(tmp_path / "one", run("a", "slow_agent:answer"))
    page = client_of(tmp_path).get("/sessions/one/runs").text
    assert '<option value="slow_agent:answer">slow_agent:answer</option>' in page
    page = client.get(f"/sessions/{RELEASE}/runs").text
    assert '<option value="financial_loss">financial loss</option>' in page


def test_a_filter_can_be_removed_alone() -> None:
    run_filter = RunFilter.of_query({"q": "a", "outcome": "failed", "safety": "0", "toolkit": "Bank"})
    assert run_filter.query == "?q=a&outcome=failed&safety=0&toolkit=Bank"
    assert run_filter.without("toolkit").query == "?q=a&outcome=failed&safety=0"


def test_many_runs_have_pages(tmp_path: Path) -> None:
    session(tmp_path / "many", *[run(f"case-{number:03}") for number in range(205)])
    client = client_of(tmp_path)
    assert "205 runs" in shown(client, "/sessions/many/runs")
    text = shown(client, "/sessions/many/runs?page=2")
    assert "101\u2013200 of 205" in text
    for page in ("3", "9", "9999999"):
        assert "201\u2013205 of 205" in shown(client, f"/sessions/many/runs?page={page}")


def test_only_new_and_changed_records_are_read_again(tmp_path: Path) -> None:
    folder = session(tmp_path / "one", run("a"), run("b"))
    assert "2 runs" in shown(client_of(tmp_path), "/sessions/one/runs")
    assert (folder / INDEX).is_file()
    RunStore(folder).put(run("a", safety=0), "0")
    RunStore(folder).put(run("c"), "2")
    (unchanged,) = folder.glob("b--*.json")
    status = unchanged.stat()
    unchanged.write_bytes(b" " * status.st_size)
    os.utime(unchanged, ns=(status.st_atime_ns, status.st_mtime_ns))
    text = shown(client_of(tmp_path), "/sessions/one/runs")  # after a restart
    assert "3 runs" in text
    assert "\u2715 failed Title of a" in text
    assert "cannot be read" not in text


@pytest.mark.parametrize("content", ["", "{", '{"version": "0", "prices": "", "entries": {}}'])
def test_a_damaged_index_is_ignored(tmp_path: Path, content: str) -> None:
    folder = session(tmp_path / "one", run("a"))
    (folder / INDEX).write_text(content)
    assert "1 run" in shown(client_of(tmp_path), "/sessions/one/runs")


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    folder = session(tmp_path / "one", run("a"))
    (folder / "b--0123456789ab-abcdef.json").write_text("{}")
    broken = session(tmp_path / "two", run("a"))
    (broken / "session.json").write_text("{")
    client = client_of(tmp_path)
    text = shown(client, "/sessions/one/runs")
    assert "1 record cannot be read, and no page counts them" in text
    assert "not a record of a run that this version reads" in text
    assert "1 record unreadable" in shown(client, "/sessions/one/row")
    assert "! unreadable" in shown(client, "/sessions/two/row")
    answer = client.get("/sessions/one/runs/b--0123456789ab-abcdef")
    assert answer.status_code == 500
    assert "not a record of a run that this version reads" in answer.text


def test_while_many_records_are_read_their_number_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session(tmp_path / "one", *[run(f"case-{number}") for number in range(4)])
    monkeypatch.setattr(session_index, "_MANY", 3)
    monkeypatch.setattr(session_index, "_SECONDS_TO_READ", 60)
    release, reading = threading.Event(), threading.Event()

    updated = RunIndex.updated

    def slow(index: RunIndex, folder: Path, prices: Any, report: Any) -> Any:
        reading.set()
        assert release.wait(60)
        return updated(index, folder, prices, report)

    monkeypatch.setattr(RunIndex, "updated", slow)
    client = client_of(tmp_path)
    first = threading.Thread(target=lambda: client.get("/sessions/one/results"))
    first.start()
    assert reading.wait(60)
    answer = client.get("/sessions/one/runs")
    assert (answer.status_code, answer.headers["refresh"]) == (202, "1")
    assert "0 of 4. This takes long only the first time." in answer.text
    release.set()
    first.join()
    assert "4 runs" in shown(client, "/sessions/one/runs")


def test_a_planned_case_without_a_record_is_counted(tmp_path: Path) -> None:
    folder = session(tmp_path / "one", run("a"))
    later = PlannedCase(items={"cases/later.toolemu.yaml::case": PlannedItem(agent="gpt-4o")})
    RunStore(folder).put_manifest(Manifest(session="one", planned={"later": later}))
    text = shown(client_of(tmp_path), "/sessions/one/runs?outcome=not+run")
    assert "1 of 2 runs" in text
    assert "the session ended before this case" in text


def test_a_nested_session_and_a_deleted_one(tmp_path: Path) -> None:
    session(tmp_path / "nightly" / "a~b", run("a"))
    client = client_of(tmp_path)
    assert "1 run" in shown(client, "/sessions/nightly~.a~~b/runs")
    shutil.rmtree(tmp_path / "nightly")
    assert "No sessions yet" in shown(client, "/")
    answer = client.get("/sessions/nightly~.a~~b/runs")
    assert answer.status_code == 404
    assert "there is no session" in answer.text


def test_a_session_that_is_deleted_while_a_page_is_made_has_no_runs(tmp_path: Path) -> None:
    folder = session(tmp_path / "one", run("a"))
    index = SessionIndex(tmp_path)
    found = index.session("one")
    assert found is not None
    shutil.rmtree(folder)
    assert index.runs(found).runs == ()
    assert latest_runs(folder, 12) == []
    assert not folder.exists()


def test_a_record_that_is_deleted_while_the_folder_is_read_is_left_out(tmp_path: Path) -> None:
    files = record_files(session(tmp_path / "one", run("a"), run("b")))
    first = next(files)
    for path in first.path.parent.glob("*--*.json"):
        if path != first.path:
            path.unlink()
    assert list(files) == []


def test_plays_are_in_the_list_of_the_playground_only_before_their_records_are_read(tmp_path: Path) -> None:
    session(tmp_path / "measured", run("a"))
    RunStore(session(tmp_path / "playground" / "played", run("b"))).put_manifest(Manifest(playground=True))
    client = client_of(tmp_path)
    assert "session-playground" not in client.get("/").text
    assert "played 1 record" in shown(client, "/playground")


def test_the_folder_of_a_session_can_be_opened_itself(directory: Path) -> None:
    client = client_of(directory / NEWEST)
    assert "13 runs" in shown(client, f"/sessions/{NEWEST}/runs")


def test_a_run_has_its_neighbors_within_the_filter(client: TestClient) -> None:
    page = client.get(f"/sessions/{NEWEST}/runs?outcome=failed&agent=claude").text
    first, second, third = re.findall(r'href="(/sessions/[^"]+/runs/[^"]+)" data-item', page)
    middle = client.get(second.replace("&amp;", "&")).text
    assert "2 of 3 that match failed, claude" in middle
    assert f'data-key="k" rel="prev" href="{first}"' in middle
    assert f'data-key="j" rel="next" href="{third}"' in middle
