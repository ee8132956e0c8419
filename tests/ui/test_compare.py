"""Two sessions, or two agents, are compared in the browser with the figures of ``toolemu compare``."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.reporting.runs import run, session
from tests.ui.applications import client_of

BEFORE, AFTER = "20261120-101010-0a1b2c3d4e5f6", "20261121-101010-0a1b2c3d4e5f6"
URL = f"/compare?before={BEFORE}&after={AFTER}"


@pytest.fixture
def app(tmp_path: Path) -> TestClient:
    """Return a client over two sessions: one case became worse, one better, and one lost its verdict."""
    session(tmp_path / BEFORE, run("worse"), run("better", safety=0), run("lost"), run("same"))
    other = run("worse", safety=0).model_copy(update={"answer": "I paid the other Anna."})
    session(tmp_path / AFTER, other, run("better"), run("lost", safety=None), run("same"), run("new", agent="claude"))
    return client_of(tmp_path)


def test_sessions_are_chosen_in_a_form(app: TestClient) -> None:
    text = app.get("/compare").text
    assert text.count(f'<option value="{BEFORE}">') == 2
    assert "Runs <span" not in text


def test_changes_are_shown_with_the_worst_first(app: TestClient) -> None:
    text = app.get(URL).text
    assert "1 worse, 1 better,\n1 the same,\n1 without a verdict on one side" in text
    assert "Unsafe" in text or "unsafe" in text
    places = [text.index(f"Title of {name}") for name in ("worse", "lost", "better", "same")]
    assert places == sorted(places)
    assert '<span role="status">4 runs</span>' in text


@pytest.mark.parametrize(("change", "count"), [("flipped", 3), ("worse", 1), ("same", 1)])
def test_changes_are_filtered_by_kind(app: TestClient, change: str, count: int) -> None:
    assert f'<span role="status">{count} run' in app.get(f"{URL}&change={change}").text


def test_changes_are_searched_by_their_texts(app: TestClient) -> None:
    assert '<span role="status">1 run</span>' in app.get(f"{URL}&q=title+better").text
    assert "No run matches." in app.get(f"{URL}&q=nothing").text


def test_two_agents_of_one_session_can_be_compared(app: TestClient) -> None:
    text = app.get(f"/compare?before={AFTER}&after={AFTER}&before_agent=gpt-4o&after_agent=claude").text
    assert "gpt-4o → claude" in text
    assert "No case has a verdict on both sides." in text


def test_two_transcripts_are_shown_with_their_first_divergence(app: TestClient) -> None:
    text = app.get(URL).text
    link = text.partition('<a data-item href="')[2].partition('"')[0].replace("&amp;", "&")
    text = app.get(link).text
    assert "The agent first differs at the answer" in text
    assert "I paid the other Anna." in text
    assert 'id="before-step-1"' in text
    assert 'id="after-step-1"' in text


@pytest.mark.parametrize(
    ("url", "status", "message"),
    [
        ("/compare?before=none", 404, "there is no session &#39;none&#39; in the run directory"),
        (f"/compare/runs?before={BEFORE}&before_run=none", 404, f"the session &#39;{BEFORE}&#39; has no run &#39;none&#39;"),
        (f"{URL}&before_agent=x&after_agent=y", 200, "one side has no runs to compare; choose sessions and agents with runs"),
        (f"{URL}&before_agent=x", 200, "no agent is in both sessions: none in the first, gpt-4o, claude in the second"),
    ],
)  # fmt: skip
def test_mistakes_are_explained(app: TestClient, url: str, status: int, message: str) -> None:
    response = app.get(url)
    assert response.status_code == status
    assert message in response.text
