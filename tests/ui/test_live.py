"""A session is watched while it runs, and after its process died."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from pytest_toolemu.sessions.live_session import LIVE, CaseInFlight, SessionProgress, read_live, remove_live, write_live
from pytest_toolemu.sessions.manifest_records import Manifest, PlannedCase, PlannedItem
from pytest_toolemu.sessions.store import RunStore
from tests.reporting.runs import HOSTILE, run, session
from tests.ui.applications import client_of
from tests.ui.live_sessions import CASES, DEAD, PROGRESS, process, write_running

NAME = "20261121-101010-0a1b2c3d4e5f6"
URL = f"/sessions/{NAME}/live"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a session with two runs."""
    return session(tmp_path / NAME, run("old"), run("new", safety=0))


@pytest.fixture
def client(folder: Path) -> TestClient:
    return client_of(folder.parent)


def shown(client: TestClient, path: str) -> str:
    """Return the text of a page without its elements."""
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text.replace("<wbr>", "")).split())


def test_a_running_session_shows_its_progress_and_what_each_case_does(folder: Path, client: TestClient) -> None:
    write_running(folder)
    text = shown(client, URL)
    assert "12 of 298 cases done" in text
    assert "✕ 2 failed ✓ 10 passed" in text
    assert "about 19:04 12 cases took 0:48; 286 are left" in text
    assert "Cost 0.53 USD 12,345 tokens budget: 20.00 USD" in text
    assert "openai:gpt-4o@api.openai.com 3 8 2 1" in text
    assert "rent 1:23 gpt-4o · gw0 call 3: Bank.Pay" in text
    assert "taxi 0:12 gpt-4o · gw0 judging after 1 call · waits to send a request" in text
    assert "visa, trial 2 0:03 claude · gw0 the agent thinks" in text
    assert "boat 0:00 claude · gw0 starting" in text
    assert "died" not in text
    assert '<a href="/sessions/' + NAME + '/live" aria-current="page">Live</a>' in client.get(URL).text


def test_finished_runs_link_to_their_transcripts_the_newest_first(folder: Path, client: TestClient) -> None:
    write_running(folder)
    path = RunStore(folder).put(run("newest"))
    os.utime(path, (time.time() + 9, time.time() + 9))
    links = re.findall(rf'href="(/sessions/{NAME}/runs/[^"?]+)"', client.get(URL).text)
    assert links[0] == f"/sessions/{NAME}/runs/{path.stem}"
    assert len(links) == 3
    assert client.get(links[0]).status_code == 200


def test_a_screen_reader_hears_every_tenth_of_the_session_once(folder: Path, client: TestClient) -> None:
    write_running(folder)
    page = client.get(URL).text
    assert '<p id="announcement" class="unseen" role="status">0 % of 298 cases done, 2 failed.</p>' in page
    assert page.count('role="status"') == 1
    query = re.search(rf'hx-get="{URL}/state([^"]+)"', page)
    assert query is not None
    again = client.get(f"{URL}/state{query[1].replace('&amp;', '&')}").text
    assert "hx-swap-oob" not in again
    write_live(folder, process(progress=PROGRESS.model_copy(update={"completed": 31})))
    assert "hx-swap-oob" in client.get(f"{URL}/state{query[1].replace('&amp;', '&')}").text


def test_a_session_whose_process_died_shows_what_was_in_flight_and_how_to_resume(
    folder: Path, client: TestClient
) -> None:
    stored = CASES[0].model_copy(update={"case": "old", "item": "0"})
    write_live(folder, process(progress=PROGRESS, started=DEAD))
    write_live(folder, process("gw0", cases=(stored, CASES[1]), started=DEAD))
    text = shown(client, URL)
    assert "The session's process has died" in text
    assert "Resume it in /home/ada/bank : pytest --toolemu-agent=gpt-4o --toolemu-resume=.toolemu/s" in text
    assert "Were in flight 1 taxi" in text, "the other case has a record"
    assert "Remaining time \N{EN DASH}" in text
    assert f"{URL}/state" not in client.get(URL).text, "nothing will change any more"
    assert "! died, 12 of 298" in shown(client, "/")


def test_a_worker_that_died_does_not_end_the_session(folder: Path, client: TestClient) -> None:
    write_running(folder)
    write_live(folder, process("gw1", cases=(CASES[0],), started=DEAD))
    text = shown(client, URL)
    assert "The worker gw1 has died." in text
    assert "gw1 · died" in text
    assert "process has died" not in text


def test_a_session_without_a_sign_of_life_may_have_died_elsewhere(folder: Path, client: TestClient) -> None:
    write_running(folder, host="elsewhere", started=DEAD)
    assert "12 of 298" in shown(client, URL), "processes of other computers are unknown here"
    write_running(folder, host="elsewhere", updated=time.time() - 100)
    assert "has written nothing for 1:40" in shown(client, URL)
    assert "▶ silent, 12 of 298" in shown(client, "/")


def test_the_list_marks_running_sessions_until_they_end(folder: Path, client: TestClient) -> None:
    write_running(folder)
    assert "▶ running, 12 of 298" in shown(client, "/")
    assert "▶ running, 12 of 298" in shown(client, f"{URL}/mark")
    remove_live(folder, "gw0")
    remove_live(folder)
    assert not (folder / LIVE).exists()
    assert f'hx-get="/sessions/{NAME}/row"' in client.get(f"{URL}/mark").text
    assert "▶ running" not in shown(client, "/")
    assert "This session is not running It has ended." in shown(client, URL)
    assert "The session has ended." in client.get(f"{URL}/state").text


def test_the_row_of_a_deleted_session_asks_in_vain_without_an_error(folder: Path, client: TestClient) -> None:
    write_running(folder)
    shutil.rmtree(folder)
    for part in ("live/mark", "row"):
        answer = client.get(f"/sessions/{NAME}/{part}")
        assert (answer.status_code, answer.text) == (204, "")
    assert client.get(URL).status_code == 404


def test_a_page_whose_session_was_deleted_says_so_and_asks_no_more(folder: Path, client: TestClient) -> None:
    write_running(folder)
    shutil.rmtree(folder)
    answer = client.get(f"{URL}/state")
    assert "hx-get" not in answer.text
    assert '<div hx-swap-oob="innerHTML:#announcement">The session was deleted.</div>' in answer.text
    assert f"This session was deleted The folder of {NAME} is no longer in the run directory." in shown(
        client, f"{URL}/state"
    )


def test_cases_that_a_running_session_has_not_reached_are_not_missing(folder: Path, client: TestClient) -> None:
    case = PlannedCase(items={"a": PlannedItem(agent="gpt-4o"), "0": PlannedItem(agent="gpt-4o")})
    RunStore(folder).put_manifest(Manifest(planned={"old": case}))
    write_running(folder)
    runs = f"/sessions/{NAME}/runs"
    text = shown(client, runs)
    assert "The session is running: 12 of 298 cases are done, and nothing here counts the others. Live" in text
    assert "2 runs" in text
    assert "not run" not in text
    write_live(folder, process(progress=PROGRESS, started=DEAD))
    text = shown(client, runs)
    assert "The session's process died when 12 of 298 cases were done; the others count as not run here." in text
    assert "3 runs" in text
    assert "not run" in text


def test_a_session_that_was_resumed_is_no_longer_marked_as_dead(folder: Path, client: TestClient) -> None:
    write_live(folder, process(progress=PROGRESS, started=DEAD))
    earlier = folder.parent / "20261121-090000-0a1b2c3d4e5f6"
    session(earlier, run("a"))
    RunStore(earlier).put_manifest(Manifest(resumed_from=(NAME,)))
    broken = session(folder.parent / "20261121-111111-0a1b2c3d4e5f6", run("a"))
    (broken / "session.json").write_text("{")
    assert "! died, 12 of 298" in shown(client, "/")
    later = session(folder.parent / "20261121-121212-0a1b2c3d4e5f6", run("old"))
    RunStore(later).put_manifest(Manifest(resumed_from=(NAME,)))
    assert "! died" not in shown(client, "/")
    mark = f'href="/sessions/{later.name}" title="{later.name}">↻ died and resumed</a>'
    assert mark in client.get("/").text
    assert mark in client.get(f"{URL}/mark").text
    assert f"It was resumed in {later.name} ." in shown(client, URL)
    assert "Resume it in" not in shown(client, URL)
    assert f"the others count as not run here. It was resumed in {later.name} ." in shown(
        client, f"/sessions/{NAME}/runs"
    )


def test_a_session_that_died_before_its_first_run_was_stored_can_be_resumed(tmp_path: Path) -> None:
    folder = session(tmp_path / NAME)
    RunStore(folder).put_manifest(Manifest(session=NAME))
    write_live(folder, process(progress=PROGRESS, started=DEAD))
    later = session(tmp_path / "20261121-121212-0a1b2c3d4e5f6", run("old"))
    RunStore(later).put_manifest(Manifest(settings={"resume": (f".toolemu/{NAME}", "--toolemu-resume")}))
    assert "↻ died and resumed" in shown(client_of(tmp_path), "/")


def test_the_list_is_sent_again_only_when_a_session_appears_starts_ends_or_is_deleted(
    folder: Path, client: TestClient
) -> None:
    def changes(page: str) -> str:
        query = re.search(r'hx-get="(/sessions\?known=\w+)"', page)
        assert query is not None
        answer = client.get(query[1])
        assert answer.status_code in (200, 204)
        return answer.text

    page = client.get("/").text
    assert changes(page) == ""
    other = session(folder.parent / "other", run("a"))
    page = changes(page)
    assert '<span hx-swap-oob="innerHTML:#session-count">2 sessions</span>' in page
    assert 'id="session-other"' in page
    write_running(folder)
    page = changes(page)
    assert "▶ running, 12 of 298" in page
    RunStore(folder).put(run("newest"))
    assert changes(page) == "", "the mark of a running session updates itself"
    remove_live(folder)
    shutil.rmtree(other)
    page = changes(page)
    assert "session-other" not in page
    shutil.rmtree(folder)
    page = changes(page)
    assert "No sessions yet" in page
    session(folder, run("a"))
    assert NAME in changes(page)


def test_live_without_a_session_waits_for_the_next_one(folder: Path, client: TestClient) -> None:
    poll = {"hx-request": "true"}
    text = shown(client, "/live")
    assert f"No session is running in {folder.parent}" in text
    assert "This page shows the next session as soon as it starts." in text
    assert client.get("/live", headers=poll).status_code == 204
    write_live(folder, process(progress=PROGRESS, started=DEAD))
    assert client.get("/live", headers=poll).status_code == 204, "it does not run any more"
    write_running(folder)
    assert client.get("/live", headers=poll).headers["hx-redirect"] == URL
    assert client.get("/live", follow_redirects=False).headers["location"] == URL


def test_hostile_text_in_live_files_is_escaped(folder: Path, client: TestClient) -> None:
    case = CaseInFlight(item=HOSTILE, case=HOSTILE, agent=HOSTILE, tool=HOSTILE, stage="acting")
    progress = SessionProgress(total=1, cost=HOSTILE, problems=(HOSTILE,), resume=HOSTILE, directory=HOSTILE)
    for started in (DEAD, process().started):
        write_live(folder, process(progress=progress, cases=(case,), started=started))
        page = client.get(URL).text
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "&lt;script&gt;alert(1)" in page


def test_files_that_cannot_be_read_are_left_out(folder: Path) -> None:
    write_running(folder)
    (folder / LIVE / "gw1.json").write_text('{"process": "gw1", "pid":')
    (folder / LIVE / "gw2.json").mkdir()
    live = read_live(folder)
    assert live is not None
    assert [one.process for one in live.processes] == ["gw0", "main"]
