"""The pages of the playground: forms are checked, text is escaped, and an application that only shows refuses them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from pytest_toolemu.ui.playground import Playground
from tests.ui.applications import client_of, rules_of
from tests.ui.playground.conftest import settled

CASE = "june-rent-for-anna"
HOSTILE = "</textarea><script>alert(1)</script>"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    client = client_of(tmp_path / "runs")
    yield client
    playground_of(client).close()


def playground_of(app: TestClient) -> Playground:
    found: Playground = app.app.state.ui.playground  # type: ignore[attr-defined]
    return found


def send(app: TestClient, path: str, **form: Any) -> Any:
    """Send a form, and wait until the play it changes is settled; return the answer."""
    response = app.post(f"/playground/{path}", json=form, headers={"x-csrf-token": rules_of(app).csrf})
    assert response.status_code == 200, response.text
    for play in playground_of(app).plays():
        settled(play)
    return response.json()


def started(app: TestClient, **form: Any) -> str:
    """Start a play; return its part of paths."""
    text = playground_of(app).cases.text(CASE)
    path: str = send(app, "plays", **({"case_id": CASE, "text": text} | form))["next"]
    return path.removeprefix("/playground/")


def test_a_play_by_hand_ends_with_a_record_that_is_in_no_list(app: TestClient) -> None:
    play = started(app)
    assert "You are the agent" in app.get(f"/playground/{play}").text
    tool = app.get(f"/playground/{play}/tool?tool=BankManager_SearchPayee").text
    assert "{\n  &#34;name&#34;: &#34;&#34;\n}</textarea>" in tool
    content = json.dumps({"name": HOSTILE})
    assert send(app, f"{play}/call", turn=1, tool="BankManager_SearchPayee", content=content) == {}
    log = app.get(f"/playground/{play}/log").text
    assert HOSTILE not in log
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in log
    assert send(app, f"{play}/answer", turn=2, text=HOSTILE) == {}
    turn = app.get(f"/playground/{play}/turn").text
    assert "The play has ended" in turn
    record = turn.partition('class="button" href="')[2].partition('"')[0]
    assert app.get(record).status_code == 200
    session = record.partition("/runs/")[0]
    assert f'href="{session}/results"' not in app.get(f"{session}/runs").text
    for figures in (f"{session}/results", f"/compare?before={session.rpartition('/')[2]}&after=x"):
        assert "by hand, so there are no figures of them" in app.get(figures).text
    assert "playground~" not in app.get("/").text
    assert "playground~" not in app.get("/label").text
    start = app.get("/playground").text
    assert "playground~" in start
    assert '<span class="pill failed">failed</span>' in start


def test_a_page_asks_for_the_state_which_changes_with_the_play(app: TestClient) -> None:
    play = started(app)
    page = app.get(f"/playground/{play}").text
    before = app.get(f"/playground/{play}/state").json()
    assert before == app.get(f"/playground/{play}/state").json()
    assert f'data-version="{before["version"]}" data-state="{before["state"]}"' in page
    assert before["status"] == "running"
    send(app, f"{play}/answer", turn=1, text="Done.")
    after = app.get(f"/playground/{play}/state").json()
    assert (after["version"] > before["version"], after["status"]) == (True, "finished")
    assert f'data-version="{after["version"]}" data-state="{after["state"]}"' in app.get(f"/playground/{play}").text


def test_a_form_that_a_person_fills_stays_when_the_pace_changes(app: TestClient) -> None:
    def state() -> str:
        return app.get(f"/playground/{play}/turn").text.partition('data-state="')[2].partition('"')[0]

    play = started(app, agent="reference:risky", emulator="person")
    before = state()
    send(app, f"{play}/pace", stepping=True)
    assert "Stop at each result" not in app.get(f"/playground/{play}/turn").text
    assert state() == before


def test_arguments_can_be_sent_unchecked(app: TestClient) -> None:
    play = started(app)
    form = {"tool": "BankManager_SearchPayee", "content": '{"x": 1}', "unchecked": True}
    assert send(app, f"{play}/call", turn=1, **form) == {}
    assert "InvalidRequest" in app.get(f"/playground/{play}/log").text


@pytest.mark.parametrize(
    ("action", "form", "problems"),
    [
        ("call", {"tool": ""}, {"tool": "choose a tool"}),
        ("call", {"tool": "BankManager_SearchPayee", "content": "{"}, {"content": "this is not JSON: "}),
        (
            "call",
            {"tool": "BankManager_SearchPayee", "content": '{"name": ""}'},
            {"content": '"name" is a required property'},
        ),
        ("call", {"tool": "BankManager_SearchPayee", "content": '{"name": 3}'}, {"content": "name: 3 is not of type"}),
        ("answer", {"text": " "}, {"text": "write the answer"}),
        ("reply", {"kind": "sing"}, {"kind": "choose one"}),
        ("fork", {"index": 0, "content": "x"}, {"content": "this is not JSON: "}),
        ("save", {"kind": "film"}, {"kind": "choose one of case, pins, world"}),
        ("save", {"kind": "case", "case_id": ""}, {"case_id": "write an ID for the case"}),
    ],
)
def test_mistakes_in_forms_are_explained(
    app: TestClient, action: str, form: dict[str, Any], problems: dict[str, str]
) -> None:
    play = started(app)
    refused = send(app, f"{play}/{action}", turn=1, **form)["refused"]
    for name, text in problems.items():
        assert refused["problems"][name].startswith(text)


def test_what_cannot_be_started_is_explained(app: TestClient) -> None:
    refused = send(app, "plays", case_id="x", text="title: 3\n")["refused"]
    assert refused["message"] == "the case is not valid"
    assert {"line": 1, "column": 8} in [{name: one[name] for name in ("line", "column")} for one in refused["lines"]]
    refused = send(app, "plays", case_id="a/b", text="x")["refused"]
    assert refused["message"].startswith('"a/b" cannot be the ID of a case')
    text = playground_of(app).cases.text(CASE)
    for field, value, message in (
        ("turns", 99, "turns: 99 is not a number from 1 to 20"),
        ("agent", "x" * 501, "agent: write at most 500 characters of text"),
        ("agent", "nope", "'nope' does not name a model"),
        ("agent", "reference:good", "the case has no reference 'good'; it has: safe, "),
        ("emulator", "nope", "'nope' does not name a model"),
        ("evaluators", "nope", "'nope' does not name a model"),
        ("user", "person", "no agent would ask you; give the agent at least 2 messages"),
    ):
        problems = send(app, "plays", **{"case_id": CASE, "text": text, field: value})["refused"]["problems"]
        assert problems[field].startswith(message)
    assert "reference:risky" in send(app, "check", case_id=CASE, text=playground_of(app).cases.text(CASE))["agents"]
    assert "TODO:" in app.get("/playground/new?toolkit=BankManager").text
    assert "there is no case" in app.get("/playground/new?case=../x").text
    assert app.get("/playground/plays/77").status_code == 404


def test_a_case_of_the_project_that_is_not_valid_can_be_corrected(app: TestClient, tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "mine.toolemu.yaml").write_text("title: 3\n")
    text = app.get("/playground/new?case=mine").text
    assert "Line 1, column 8: title: 3: expected text" in text
    assert '<option value="mine">' in app.get("/playground").text


def test_a_turn_that_is_over_is_refused(app: TestClient) -> None:
    play = started(app)
    assert send(app, f"{play}/answer", turn=9, text="x")["refused"]["message"].startswith("this was answered already")


def test_an_application_that_only_shows_has_no_playground(app: TestClient, tmp_path: Path) -> None:
    only_shows = client_of(tmp_path / "runs", read_only=True)
    assert 'href="/playground"' in app.get("/").text
    assert 'href="/playground"' not in only_shows.get("/").text
    for path in ("", "/new?case=x", "/plays/1", "/plays/1/state"):
        assert only_shows.get(f"/playground{path}").status_code == 403
    headers = {"x-csrf-token": rules_of(only_shows).csrf}
    assert only_shows.post("/playground/plays", json={}, headers=headers).status_code == 403
    assert app.post("/playground/plays", json={}).status_code == 403
