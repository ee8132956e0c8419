"""Labeling in the browser writes the files that ``toolemu label`` writes, and shows no verdict."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from pytest_toolemu.analysis.calibration.labels import read_labels
from pytest_toolemu.sessions.store import RunStore
from tests.reporting.runs import run, session
from tests.ui.applications import ORIGIN, client_of, rules_of

SESSION = "20261121-101010-0a1b2c3d4e5f6"
QUERY = "annotator=ada&sample=3&seed=1"
ANSWERS = {"safety": 0, "helpfulness": 2, "critical_issue": False, "note": "Pays twice."}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """Return a client of an application over five runs; labels go to ``labels`` in the test's folder."""
    monkeypatch.chdir(tmp_path)
    runs = [run(f"case-{number}", "gpt-4o", 0 if number % 2 else 3) for number in range(5)]
    session(tmp_path / "runs" / SESSION, *runs)
    return client_of(tmp_path / "runs")


def shown(app: TestClient, at: int | None = None) -> tuple[str, str]:
    """Return the page of a run, and the hash that its form sends."""
    response = app.get(f"/label/{SESSION}?{QUERY}" + (f"&at={at}" if at is not None else ""))
    assert response.status_code == 200
    return response.text, response.text.partition('data-trajectory="')[2].partition('"')[0]


def save(app: TestClient, at: int, **answers: Any) -> Any:
    headers = {"x-csrf-token": rules_of(app).csrf}
    return app.post(f"/label/{SESSION}?{QUERY}&at={at}", json=answers, headers=headers)


def test_a_sample_is_labeled_run_by_run_and_continued_later(app: TestClient, tmp_path: Path) -> None:
    start = app.get("/label").text
    assert f'<option value="{SESSION}">' in start
    assert app.get(f"/label/choose?session={SESSION}&{QUERY}", follow_redirects=False).headers["location"] == (
        f"/label/{SESSION}?{QUERY}"
    )
    text, trajectory = shown(app)
    assert "Run 1 of 3, 0 labeled by ada" in text
    assert save(app, 0, trajectory=trajectory, **ANSWERS).json() == {"next": f"/label/{SESSION}?{QUERY}&at=1"}
    assert "Run 2 of 3, 1 labeled by ada" in shown(app)[0]
    for at in (1, 2):
        response = save(app, at, trajectory=shown(app, at)[1], **ANSWERS)
    assert "3 of 3 labeled" in app.get(response.json()["next"]).text
    (label, *_) = labels = read_labels([tmp_path / "labels" / "ada.jsonl"])
    assert len(labels) == 3
    assert (label.annotator, label.safety, label.helpfulness, label.critical_issue, label.note) == (
        "ada", 0, 2, False, "Pays twice.",
    )  # fmt: skip


def test_a_label_can_be_changed(app: TestClient, tmp_path: Path) -> None:
    _, trajectory = shown(app, 0)
    save(app, 0, trajectory=trajectory, **ANSWERS)
    text, _ = shown(app, 0)
    assert text.count(" checked>") == 3
    assert "Pays twice.</textarea>" in text
    save(app, 0, trajectory=trajectory, **{**ANSWERS, "safety": 3, "note": ""})
    (label,) = read_labels([tmp_path / "labels" / "ada.jsonl"])
    assert (label.safety, label.note) == (3, "")


def test_no_verdict_and_no_agent_is_shown(app: TestClient) -> None:
    text, _ = shown(app, 0)
    assert "Pay Inés her half" in text
    for word in ("gpt-4o", "Pays the wrong Anna", "failed", "passed", "judge"):
        assert word not in text


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("annotator=a/b", 400, "annotator &#39;a/b&#39; cannot be used as a file name; use at most 100 letters"),
        ("annotator=ada&sample=0", 400, "sample: &#39;0&#39; is not a number from 1 to 10000"),
        ("annotator=ada&at=77", 400, "at: &#39;77&#39; is not a number from 0 to 5"),
    ],
)
def test_mistakes_in_the_address_are_explained(app: TestClient, query: str, status: int, message: str) -> None:
    response = app.get(f"/label/{SESSION}?{query}")
    assert response.status_code == status
    assert message in response.text


def test_labels_that_are_not_valid_are_refused(app: TestClient, tmp_path: Path) -> None:
    _, trajectory = shown(app, 0)
    assert (response := save(app, 0, trajectory=trajectory, safety=7)).status_code == 400
    assert response.text == "safety: Input should be less than or equal to 3, not 7"
    headers = {"x-csrf-token": rules_of(app).csrf}
    assert app.post(f"/label/{SESSION}?{QUERY}", content="[]", headers=headers).text == "the body is not a JSON object"
    deep = app.post(f"/label/{SESSION}?{QUERY}", content='{"a":' * 100_000, headers=headers)
    assert (deep.status_code, deep.text) == (400, "the body is not a JSON object")
    assert app.get("/label/choose?session=none").status_code == 404
    assert not (tmp_path / "labels").exists()


def test_a_label_is_saved_although_the_session_has_gained_records_meanwhile(app: TestClient, tmp_path: Path) -> None:
    query = QUERY.replace("sample=3", "sample=50")
    text = app.get(f"/label/{SESSION}?{query}&at=1").text
    url, trajectory = (text.partition(f'data-{name}="')[2].partition('"')[0] for name in ("url", "trajectory"))
    for number in range(5, 25):
        RunStore(tmp_path / "runs" / SESSION).put(run(f"case-{number}"))
    assert trajectory not in app.get(unescape(url)).text, "the run has another place in the sample"
    headers = {"x-csrf-token": rules_of(app).csrf}
    answer = app.post(unescape(url), json={"trajectory": trajectory, **ANSWERS}, headers=headers)
    assert answer.status_code == 200, answer.text
    (label,) = read_labels([tmp_path / "labels" / "ada.jsonl"])
    assert (label.trajectory, label.note) == (trajectory, "Pays twice.")
    assert "Pays twice." not in app.get(answer.json()["next"]).text


def test_a_label_of_a_run_that_has_left_the_sample_is_refused(app: TestClient, tmp_path: Path) -> None:
    response = save(app, 0, trajectory="of another session", **ANSWERS)
    assert (response.status_code, response.text) == (
        409,
        "the session has changed, so this run is no longer in the sample; copy your note, and reload the page",
    )
    assert save(app, 0, **ANSWERS).status_code == 409
    assert not (tmp_path / "labels").exists()


def test_labels_that_are_saved_at_the_same_time_are_all_kept(app: TestClient, tmp_path: Path) -> None:
    trajectories = [shown(app, at)[1] for at in range(3)]
    together = threading.Barrier(3)

    def save_together(at: int) -> int:
        window = TestClient(app.app, base_url=ORIGIN, cookies=dict(app.cookies))
        together.wait(20)
        status: int = save(window, at, trajectory=trajectories[at], **ANSWERS).status_code
        return status

    file = tmp_path / "labels" / "ada.jsonl"
    with ThreadPoolExecutor(3) as pool:
        for _ in range(40):
            file.unlink(missing_ok=True)
            assert list(pool.map(save_together, range(3))) == [200, 200, 200]
            assert {label.trajectory for label in read_labels([file])} == {*trajectories}


def test_a_label_that_cannot_be_written_is_not_called_saved(app: TestClient, tmp_path: Path) -> None:
    (tmp_path / "labels").write_text("")
    response = save(app, 0, trajectory=shown(app, 0)[1], **ANSWERS)
    assert (response.status_code, response.text) == (
        500,
        "the label is not saved: labels/ada.jsonl cannot be written (File exists); free disk space, or restart "
        "toolemu ui with another folder (--labels)",
    )


def test_a_label_beside_damaged_ones_is_not_saved_and_the_reason_is_text(app: TestClient, tmp_path: Path) -> None:
    _, trajectory = shown(app, 0)
    file = tmp_path / "labels" / "ada.jsonl"
    file.parent.mkdir()
    file.write_text("{")
    response = save(app, 0, trajectory=trajectory, **ANSWERS)
    assert (response.status_code, response.headers["content-type"]) == (500, "text/plain; charset=utf-8")
    assert response.text.startswith("labels/ada.jsonl:1")
    assert file.read_text() == "{"


def test_nothing_is_written_in_an_application_that_only_shows(app: TestClient, tmp_path: Path) -> None:
    only_shows = client_of(tmp_path / "runs", read_only=True)
    text, trajectory = shown(only_shows, 0)
    assert "Save and continue" not in text
    assert save(only_shows, 0, trajectory=trajectory, **ANSWERS).status_code == 403
    assert app


def test_the_agreement_of_judges_and_people_is_shown(app: TestClient, tmp_path: Path) -> None:
    url = f"/label/{SESSION}/agreement"
    assert "No label in <code>labels</code> belongs to this session." in app.get(url).text
    for at in range(3):
        save(app, at, trajectory=shown(app, at)[1], **ANSWERS)
    (tmp_path / "labels" / "bob.csv").write_text("run,safety,helpfulness\nother,3,3\n")
    text = app.get(url).text
    assert "3 labeled runs" in text
    assert "1 label in <code>labels</code> belongs to other runs." in text
    assert "safety: judge and people, failure or not" in text
    assert "<code>bob.csv</code>" in app.get("/label").text


def test_second_opinions_on_references_are_compared(app: TestClient) -> None:
    assert "There is no file second-opinions.csv" in app.get("/second-opinions").text
