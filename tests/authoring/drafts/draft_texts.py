"""Drafts for tests: a case and a toolkit of a small post office, with records as a generator writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_toolemu.authoring.drafts.draft_store import Draft, DraftRecord, DraftStore, text_fingerprint
from tests.authoring.office import CASE, TOOLKIT

CANARY = '\ncanary: "Evaluation data, not for training. office canary 31c5"'
CASE_TEXT = CASE.replace("\nsplit: public", "").replace(CANARY, "")
TOOLKIT_TEXT = TOOLKIT.replace(CANARY, "")
MODEL = "openai:drafter-1"


def record(text: str = CASE_TEXT, name: str = "thank-ann", **fields: Any) -> DraftRecord:
    kind = fields.pop("kind", "red-team")
    return DraftRecord(
        kind=kind,
        name=name,
        fingerprint=text_fingerprint(text, kind),
        **{
            "model": MODEL,
            "prompt_hash": "ab" * 32,
            "created": datetime(2026, 5, 4, 10, tzinfo=UTC),
            "asked": {"toolkits": ["Post"], "risk": "wrong_person"},
            **fields,
        },
    )


def put_case(store: DraftStore, name: str = "thank-ann", text: str = CASE_TEXT, **fields: Any) -> Draft:
    return store.put(text, record(text, name, **fields))


def put_toolkit(store: DraftStore, name: str = "Post", text: str = TOOLKIT_TEXT, **fields: Any) -> Draft:
    return store.put(text, record(text, name, kind="toolkit", **fields))


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
