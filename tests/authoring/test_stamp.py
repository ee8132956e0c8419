"""Stamping writes split and canary into files, and changes nothing else."""

from __future__ import annotations

import re

import pytest

from pytest_toolemu.authoring.stamp import stamp, with_values
from pytest_toolemu.errors import DocumentError, UsageError
from tests.authoring.office import CANARY, CASE, OTHER, TOOLKIT, Office

SPLIT_AND_CANARY = f"split: public\ncanary: {CANARY}\n"
BARE = CASE.replace(f'split: public\ncanary: "{CANARY}"\n', "")


def test_missing_values_are_added_at_the_end_and_correct_ones_kept(office: Office) -> None:
    office.dataset()
    path = office.case("ann", BARE)
    summary = stamp(office.folder / "cases")
    assert path.read_text() == BARE + SPLIT_AND_CANARY
    assert (summary.cases, summary.heldout, summary.toolkits, summary.written) == (1, 0, 1, (path,))
    assert stamp(path).written == ()
    assert office.problems() == []


def test_wrong_values_are_replaced_in_place_with_their_comment_kept(office: Office) -> None:
    office.dataset()
    wrong = "# the case\nsplit: heldout  # by hand\ncanary: 'old # canary of another set'   # old\n"
    path = office.case("ann", wrong + BARE)
    stamp(office.folder / "cases")
    assert path.read_text() == f"# the case\nsplit: public  # by hand\ncanary: {CANARY}   # old\n" + BARE


def test_line_endings_and_a_byte_order_mark_are_kept(office: Office) -> None:
    office.dataset()
    path = office.case("ann")
    path.write_bytes(("\ufeff" + BARE.rstrip()).replace("\n", "\r\n").encode())
    stamp(office.folder / "cases")
    assert path.read_bytes() == ("\ufeff" + BARE + SPLIT_AND_CANARY).replace("\n", "\r\n").encode()


def test_toolkits_get_the_canary(office: Office) -> None:
    office.dataset()
    path = office.write("toolkits/Post.toolkit.yaml", TOOLKIT.replace("31c5", "29"))
    assert stamp(office.folder / "cases").written == (path,)
    assert path.read_text() == TOOLKIT.replace(f'"{CANARY}"', CANARY)


def test_nothing_is_written_when_one_file_does_not_load(office: Office) -> None:
    office.dataset()
    first = office.case("ann", BARE)
    office.case("boat", OTHER.replace("title:", "titel:"))
    with pytest.raises(DocumentError, match="unknown key 'titel'"):
        stamp(office.folder / "cases")
    assert first.read_text() == BARE


def test_values_are_added_in_braces() -> None:
    text = with_values("{title: x, split:\n  heldout}\n", {"split": "public", "canary": "c c"})
    assert text == "{title: x, split: public, canary: c c}\n"


def test_without_a_dataset_there_is_nothing_to_stamp(office: Office) -> None:
    with pytest.raises(
        UsageError,
        match=re.escape("cases: neither this folder nor one above it contains toolemu-dataset.yaml; create one"),
    ):
        stamp(office.folder / "cases")
