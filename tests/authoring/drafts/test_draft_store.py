"""The folder of drafts: nothing is lost or overwritten, and a rejected draft is recognized."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from pytest_toolemu.authoring.drafts.draft_store import (
    DraftFinding,
    DraftRecord,
    DraftStore,
    ReviewDecision,
    text_fingerprint,
)
from pytest_toolemu.core.case import DRAFT_MARK
from pytest_toolemu.errors import UsageError
from tests.authoring.drafts.draft_texts import CASE_TEXT, TOOLKIT_TEXT, files, put_case, put_toolkit, record

FINDING = DraftFinding(
    source="lint", rule="leak", level="error", place="instruction", message="'beware' reveals it; cut it"
)
DECISION = ReviewDecision(reviewer="Jorunn", date=datetime(2026, 5, 5, tzinfo=UTC), reason="not realistic")


@pytest.fixture
def store(tmp_path: Path) -> DraftStore:
    return DraftStore(tmp_path / "drafts")


def test_each_draft_has_a_record_beside_it_and_toolkits_come_first(store: DraftStore) -> None:
    written = [put_case(store), put_toolkit(store)]
    assert files(store.folder) == [
        "cases/thank-ann.draft.json",
        "cases/thank-ann.toolemu.yaml",
        "toolkits/Post.draft.json",
        "toolkits/Post.toolkit.yaml",
    ]
    assert list(store.drafts()) == [written[1], written[0]]
    assert written[0].path.read_text(encoding="utf-8") == CASE_TEXT + DRAFT_MARK
    assert store.find("red-team", "thank-ann") == written[0]
    assert store.find("toolkit", "Bank") is None


def test_an_undecided_draft_is_replaced_by_its_revision(store: DraftStore) -> None:
    put_case(store)
    revised = put_case(store, text=CASE_TEXT.replace("nice card", "card"), revisions=1, status="ready")
    assert list(store.drafts()) == [revised]
    assert "nice" not in revised.path.read_text(encoding="utf-8")


def test_fields_of_a_record_change_and_are_checked(store: DraftStore) -> None:
    draft = store.update(put_case(store), status="needs_work", findings=(FINDING,))
    assert next(store.drafts()) == draft
    assert str(draft.record.findings[0]) == "error: instruction: 'beware' reveals it; cut it [lint: leak]"
    with pytest.raises(ValidationError, match="status"):
        store.update(draft, status="lost")


def test_a_rejected_draft_is_kept_and_recognized_in_other_words_of_the_same_letters(store: DraftStore) -> None:
    draft = store.reject(put_case(store), DECISION)
    assert files(store.folder) == ["rejected/cases/thank-ann.draft.json", "rejected/cases/thank-ann.toolemu.yaml"]
    assert list(store.drafts()) == [draft]
    again = CASE_TEXT.replace("with a nice card.", "with a NICE card!").replace("safety: 3", "safety: 2")
    assert store.rejected_before(again, "red-team") == draft
    assert store.rejected_before(again.replace("nice", "NEW").replace("NICE", "NEW"), "red-team") is None
    assert store.rejected_before(TOOLKIT_TEXT, "toolkit") is None
    with pytest.raises(UsageError, match="a draft of this name was rejected; choose another name"):
        put_case(store)


def test_an_accepted_draft_leaves_its_record(store: DraftStore) -> None:
    store.accept(put_case(store), DECISION)
    assert files(store.folder) == ["cases/thank-ann.draft.json"]
    with pytest.raises(UsageError, match="a draft of this name was accepted"):
        put_case(store)


def test_a_file_of_a_person_is_not_replaced(store: DraftStore) -> None:
    own = store.path_of("red-team", "mine")
    own.parent.mkdir(parents=True)
    own.write_text("title: Mine\n", encoding="utf-8")
    with pytest.raises(UsageError, match="exists and has no record, so it is not a draft; choose another name"):
        put_case(store, "mine")
    assert own.read_text(encoding="utf-8") == "title: Mine\n"


def test_names_cannot_leave_the_folder(store: DraftStore) -> None:
    with pytest.raises(UsageError, match=r'"../../up" cannot be the name of a draft: use letters'):
        store.path_of("red-team", "../../up")
    with pytest.raises(UsageError, match=r'"a/B" cannot be the name of a draft: use letters'):
        store.path_of("toolkit", "a/B")
    with pytest.raises(ValidationError, match="not a valid case ID"):
        record(name="../up")


def test_a_damaged_record_is_named(store: DraftStore) -> None:
    draft = put_case(store)
    draft.record_path.write_text('{"kind": "poem"}', encoding="utf-8")
    with pytest.raises(UsageError, match=r"not the record of a draft that this version reads: .*kind") as error:
        list(store.drafts())
    assert "restore it, or delete it with its draft" in str(error.value)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "drafts").write_text("a file", encoding="utf-8")
    with pytest.raises(UsageError, match=r"drafts.*: cannot be written: .*; free disk space, or choose another folder"):
        put_case(DraftStore(tmp_path / "drafts"))


def test_fingerprints_of_texts_that_are_no_drafts_differ() -> None:
    texts = ["title: [", "title: x", "- 1", "instruction: [a]\ntoolkits: [{}]"]
    assert len({text_fingerprint(text, "standard") for text in texts}) == len(texts)
    assert text_fingerprint(TOOLKIT_TEXT, "toolkit") == text_fingerprint(
        TOOLKIT_TEXT.replace("Send a letter.", "Send one."), "toolkit"
    )


def test_records_survive_a_round_trip() -> None:
    one = record(findings=(FINDING,), status="needs_work", origin="base", revisions=2, stages=("stages/names.json",))
    assert DraftRecord.model_validate_json(one.model_dump_json()) == one
