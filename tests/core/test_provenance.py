"""Provenance says where a file comes from. It changes no result, so it is not part of the hash of a run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.run import hashes_of
from pytest_toolemu.core.toolkit import Provenance
from pytest_toolemu.errors import DocumentError
from tests.authoring.office import CASE, TOOLKIT, Office

PROVENANCE = f"""\
provenance:
  model: openai:drafter-1
  prompt_hash: {"ab" * 32}
  reviewer: Jorunn Aas
  date: "2026-05-04T10:00:00+00:00"
"""


def test_provenance_is_read_and_does_not_change_hashes(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.write("toolkits/Post.toolkit.yaml", TOOLKIT + PROVENANCE)
    plain, drafted = load_case(office.case("plain")), load_case(office.case("drafted", CASE + PROVENANCE))
    expected = Provenance(
        model="openai:drafter-1",
        prompt_hash="ab" * 32,
        reviewer="Jorunn Aas",
        date=datetime(2026, 5, 4, 10, tzinfo=UTC),
    )
    assert drafted.case.provenance == drafted.toolkits[0].provenance == expected
    assert hashes_of(drafted.case, drafted.toolkits)["case"] == hashes_of(plain.case, plain.toolkits)["case"]
    without = drafted.toolkits[0].model_copy(update={"provenance": None})
    assert hashes_of(plain.case, (without,)) == hashes_of(plain.case, drafted.toolkits)


def test_a_hash_that_is_none_is_named(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.write("toolkits/Post.toolkit.yaml", TOOLKIT)
    with pytest.raises(DocumentError, match="not a SHA-256 hash, which has 64 hexadecimal digits"):
        load_case(office.case("drafted", CASE + PROVENANCE.replace("ab" * 32, "abab")))
