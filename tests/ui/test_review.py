"""Drafts are reviewed in the browser by the rules of ``toolemu review``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from pytest_toolemu.authoring.drafts.draft_store import DraftStore
from pytest_toolemu.core import toolkit
from pytest_toolemu.core.case import DRAFT_MARK
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.ui.context import ProjectFolders
from tests.authoring.drafts.draft_texts import put_case, put_toolkit
from tests.authoring.drafts.test_review import LEAKING, READY
from tests.ui.applications import client_of, rules_of

CASE = "/review/cases/thank-ann"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DraftStore:
    """Return a folder with a toolkit and a case of which the wording gives the risk away."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(toolkit, "benchmark_folder", lambda: tmp_path)
    store = DraftStore(Path("drafts"))
    put_toolkit(store)
    put_case(store, text=LEAKING)
    return store


@pytest.fixture
def app(store: DraftStore, tmp_path: Path) -> TestClient:
    assert store.folder.is_dir()
    return client_of(tmp_path, folders=ProjectFolders())


def act(app: TestClient, url: str, **body: Any) -> Any:
    return app.post(url, json=body, headers={"x-csrf-token": rules_of(app).csrf})


def hash_of(app: TestClient, url: str = CASE) -> str:
    return app.get(url).text.partition('data-hash="')[2].partition('"')[0]


def accept(app: TestClient, url: str, **body: Any) -> Any:
    """Accept a draft with the text that its page shows now, unless ``body`` has the hash of another one."""
    return act(app, f"{url}/accept", **{"reviewer": "Jorunn Aas", "hash": hash_of(app, url), **body})


def test_the_queue_shows_drafts_with_toolkits_first(app: TestClient) -> None:
    text = app.get("/review").text
    assert "2 drafts in <code>drafts</code> wait for your decision" in text
    assert text.index('href="/review/toolkits/Post"') < text.index(f'href="{CASE}"')
    assert "not checked yet" in text
    assert "<td>openai:drafter-1</td>" in text


def test_a_draft_is_shown_with_a_fresh_card(app: TestClient) -> None:
    text = app.get(CASE).text
    assert "✕ needs work" in text
    assert "&#39;be careful&#39; reveals that something may go wrong" in text
    assert "7 of 8 mutants noticed" in text
    assert "and be careful." in text.partition("<textarea")[2]


def test_a_case_finds_a_toolkit_that_was_accepted_into_a_suite_elsewhere(
    store: DraftStore, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    suite = tmp_path_factory.mktemp("suite")
    app = client_of(tmp_path, folders=ProjectFolders(suite=suite))
    assert accept(app, "/review/toolkits/Post").status_code == 200
    assert "7 of 8 mutants noticed" in app.get(CASE).text
    problems = act(app, f"{CASE}/lint", text=READY).json()["problems"]
    assert problems == []
    assert act(app, f"{CASE}/save", text=READY, hash=hash_of(app)).status_code == 200
    assert accept(app, CASE).status_code == 200
    assert load_case(suite / "cases" / "thank-ann.toolemu.yaml").case.provenance is not None
    assert store.undecided() == ()


def test_text_is_linted_before_it_is_saved(app: TestClient, store: DraftStore) -> None:
    answer = act(app, f"{CASE}/lint", text=LEAKING.replace("title:", "titel:")).json()
    assert {"row": 0, "column": 0, "level": "error"}.items() <= answer["problems"][0].items()
    assert "the key 'title' is missing" in answer["problems"][0]["message"]
    assert next(line for line in answer["diff"] if line[0] in "+-").startswith("-title:")
    leak = act(app, f"{CASE}/lint", text=LEAKING + DRAFT_MARK).json()
    assert [(one["row"], one["level"]) for one in leak["problems"]] == [(2, "error")]
    assert leak["diff"] == []
    draft = store.find("standard", "thank-ann")
    assert draft is not None
    assert draft.path.read_text() == LEAKING + DRAFT_MARK
    assert sorted(path.name for path in store.folder.iterdir()) == ["cases", "toolkits"]


def test_an_edited_draft_is_saved_checked_and_accepted(app: TestClient, tmp_path: Path) -> None:
    answer = act(app, f"{CASE}/save", text=READY, hash=hash_of(app)).json()
    assert "✓ ready" in answer["report"]
    assert answer["hash"] == hash_of(app)
    assert "unknown toolkit 'Post'" in accept(app, CASE).text
    assert accept(app, "/review/toolkits/Post").json() == {"message": "accepted: toolkits/Post.toolkit.yaml"}
    assert accept(app, CASE).json() == {"message": "accepted: cases/thank-ann.toolemu.yaml"}
    case = load_case(tmp_path / "cases" / "thank-ann.toolemu.yaml").case
    assert case.provenance is not None
    assert case.provenance.reviewer == "Jorunn Aas"
    text = app.get("/review").text
    assert "Nothing to review" in text
    assert "Accepted of decided" in text
    assert app.get(CASE).status_code == 404


def test_a_draft_with_errors_is_accepted_only_with_a_reason(app: TestClient) -> None:
    accept(app, "/review/toolkits/Post")
    refused = accept(app, CASE)
    assert refused.status_code == 400
    assert refused.text.endswith(
        "the checks report 1 error; correct the draft, or give a reason to accept it nevertheless"
    )
    assert accept(app, CASE, reason="The hint is wanted.").status_code == 200


def test_a_draft_is_rejected_with_a_reason(app: TestClient, store: DraftStore) -> None:
    url = f"{CASE}/reject"
    assert act(app, url, reviewer="Jorunn Aas").text == (
        "give the reason for which you reject the draft, so that it is not drafted again"
    )
    assert act(app, url, reviewer=" ", reason="Dull.").text.startswith(
        "reviewer ' ': give your name, with at most 100 "
    )
    assert act(app, url, reviewer="Jorunn Aas", reason="Dull.", hash=hash_of(app)).json() == {
        "message": "rejected: drafts/rejected/cases/thank-ann.toolemu.yaml"
    }
    (rejected,) = (draft for draft in store.drafts() if draft.record.status == "rejected")
    assert rejected.record.decision is not None
    assert rejected.record.decision.reason == "Dull."


def test_changes_of_someone_else_are_not_overwritten(app: TestClient, store: DraftStore) -> None:
    before = hash_of(app)
    draft = store.find("standard", "thank-ann")
    assert draft is not None
    draft.path.write_text(READY)
    answer = act(app, f"{CASE}/save", text=LEAKING, hash=before)
    assert answer.status_code == 409
    assert answer.text == "the file was changed by someone else; reload the page, and repeat your changes"
    assert draft.path.read_text() == READY


@pytest.mark.parametrize("action", ["accept", "reject"])
def test_nobody_decides_on_a_text_that_another_window_has_saved(
    app: TestClient, store: DraftStore, action: str
) -> None:
    accept(app, "/review/toolkits/Post")
    decision = {"reviewer": "Jorunn Aas", "reason": "Read it.", "hash": hash_of(app)}
    after = act(app, f"{CASE}/save", text=READY, hash=decision["hash"]).json()["hash"]
    for body in (decision, {**decision, "hash": ""}):
        answer = act(app, f"{CASE}/{action}", **body)
        assert (answer.status_code, answer.text) == (
            400,
            "the file was changed by someone else; reload the page, read it, and decide again",
        )
    assert store.find("standard", "thank-ann") in store.undecided()
    assert act(app, f"{CASE}/{action}", **{**decision, "hash": after}).status_code == 200


def test_a_variant_is_shown_with_its_difference_from_the_base(app: TestClient, store: DraftStore) -> None:
    put_case(store, "thank-ann-briefly", READY.replace("a nice card", "a card"), kind="paraphrase", origin="thank-ann")
    text = app.get("/review/cases/thank-ann-briefly").text
    assert "Difference from thank-ann.toolemu.yaml" in text
    assert '<span class="removed">-' in text


@pytest.mark.parametrize("url", ["/review/cases/other", "/review/cases/..%2fx", "/review/secrets/thank-ann"])
def test_other_files_cannot_be_reached(app: TestClient, url: str) -> None:
    assert app.get(url).status_code == 404


def test_a_script_gets_the_text_of_an_error_and_no_page(app: TestClient) -> None:
    answer = act(app, "/review/cases/other/save")
    assert (answer.status_code, answer.text) == (404, "no draft 'other' waits for a decision")
    assert answer.headers["content-type"].startswith("text/plain")


def test_nothing_is_changed_in_an_application_that_only_shows(app: TestClient, tmp_path: Path) -> None:
    only_shows = client_of(tmp_path, read_only=True)
    text = only_shows.get(CASE).text
    assert "readonly" in text
    assert 'id="accept"' not in text
    assert accept(only_shows, CASE).status_code == 403
    assert app


def test_editors_get_the_schemas_and_long_texts_are_refused(app: TestClient) -> None:
    assert app.get("/review/schemas/cases").json()["title"] == "toolemu case"
    assert app.get("/review/schemas/toolkits").json()["title"] == "toolemu toolkit"
    assert act(app, f"{CASE}/lint", text="x" * 200_001).text == "text is not a text of at most 200,000 characters"
    headers = {"x-csrf-token": rules_of(app).csrf}
    assert app.post(f"{CASE}/lint", content="[]", headers=headers).text == "the body is not a JSON object"
