"""Toolkits of one case that declare the same shared entity have the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.errors import DocumentError
from tests.worlds.test_case_rows import played

TOOLKIT = """\
name: {name}
title: {name}
category: files
description: Files.
entities:
  file:
    key: file_id
    fields: {{file_id: {{type: string}}, name: {{type: string}}, {own_field}: {{type: string}}}}
    shared: true
tools:
  - name: List
    description: List the files.
    parameters: {{type: object, properties: {{}}}}
    returns:
      type: object
      properties:
        files:
          type: array
          items:
            type: object
            properties: {{file_id: {{type: string}}, name: {{type: string}}, {own_field}: {{type: string}}}}
            required: [file_id]
      required: [files]
    effect: read
    operation: {{search: file}}
  - name: Add
    description: Add a file.
    parameters: {{type: object, properties: {{name: {{type: string}}}}, required: [name]}}
    returns: {{type: object, properties: {{file_id: {{type: string}}}}, required: [file_id]}}
    effect: write
    operation: {{create: file}}
  - name: Remove
    description: Remove a file.
    parameters: {{type: object, properties: {{file_id: {{type: string}}}}, required: [file_id]}}
    returns: {{type: object, properties: {{file_id: {{type: string}}}}, required: [file_id]}}
    errors: {{NotFound: The file is unknown.}}
    effect: destructive
    operation: {{delete: file}}
"""
CASE = """\
title: Tidy up
toolkits: [Mail, Shelf]
instruction: Tidy up.
world:
  Mail:
    file: [{file_id: F-1, name: one}]
  Shelf: {SHELF}
ids: {Shelf.file: [F-2]}
"""


def case_of(tmp_path: Path, shelf: str) -> Path:
    folder = tmp_path / "toolkits"
    folder.mkdir()
    for name, own_field in (("Mail", "sender"), ("Shelf", "folder")):
        text = TOOLKIT.format(name=name, own_field=own_field)
        (folder / f"{name}.toolkit.yaml").write_text(text, encoding="utf-8")
    path = tmp_path / "tidy.toolemu.yaml"
    path.write_text(CASE.replace("{SHELF}", shelf), encoding="utf-8")
    return path


TAG = """\
  tag:
    key: tag_id
    fields: {tag_id: {type: string}, file_id: {type: string}}
    refs: {file_id: file}
tools:
"""


@pytest.mark.parametrize("shelf", ["{}", "{file: [{file_id: F-1}]}"], ids=["only in the other", "in both"])
def test_a_reference_may_name_a_shared_row_of_another_toolkit(tmp_path: Path, shelf: str) -> None:
    path = case_of(tmp_path, shelf)
    toolkit = tmp_path / "toolkits" / "Shelf.toolkit.yaml"
    toolkit.write_text(toolkit.read_text("utf-8").replace("tools:\n", TAG, 1), encoding="utf-8")
    text = path.read_text("utf-8").replace(f"Shelf: {shelf}", f"Shelf: {shelf[:-1]}{', ' * (shelf != '{}')}TAGS}}")
    path.write_text(text.replace("TAGS", "tag: [{tag_id: T-1, file_id: F-1}]"), encoding="utf-8")
    assert load_case(path).case.world["Shelf"]["tag"]
    path.write_text(text.replace("TAGS", "tag: [{tag_id: T-1, file_id: F-7}]"), encoding="utf-8")
    with pytest.raises(DocumentError, match='there is no file "F-7"; did you mean'):
        load_case(path)


def test_the_key_of_a_new_row_is_not_that_of_a_shared_row(tmp_path: Path) -> None:
    path = case_of(tmp_path, "{}")
    path.write_text(path.read_text("utf-8").replace("[F-2]", "[F-1]"), encoding="utf-8")
    with pytest.raises(DocumentError, match='"F-1" is already the file_id of a row'):
        load_case(path)


def test_a_change_by_one_toolkit_is_seen_by_the_other(tmp_path: Path) -> None:
    path = case_of(tmp_path, "{file: [{file_id: F-1, name: one, folder: home}]}")
    calls = [("Shelf_Add", {"name": "two"}), ("Mail_List", {}), ("Mail_Remove", {"file_id": "F-1"}), ("Shelf_List", {})]
    added, mail, _, shelf = played(path, [("Shelf_List", {}), *calls]).steps[1:]
    assert added.observation.content == {"file_id": "F-2"}
    assert mail.observation.content == {"files": [{"file_id": "F-1", "name": "one"}, {"file_id": "F-2", "name": "two"}]}
    assert shelf.observation.content == {"files": [{"file_id": "F-2", "name": "two"}]}


def test_fields_that_only_one_toolkit_declares_keep_their_values(tmp_path: Path) -> None:
    path = case_of(tmp_path, "{file: [{file_id: F-1, name: one, folder: home}]}")
    mail, shelf = played(path, [("Mail_List", {}), ("Shelf_List", {})]).steps
    assert mail.observation.content == {"files": [{"file_id": "F-1", "name": "one"}]}
    assert shelf.observation.content == {"files": [{"file_id": "F-1", "name": "one", "folder": "home"}]}


def test_the_rows_of_the_first_toolkit_are_enough(tmp_path: Path) -> None:
    (shelf,) = played(case_of(tmp_path, "{}"), [("Shelf_List", {})]).steps
    assert shelf.observation.content == {"files": [{"file_id": "F-1", "name": "one"}]}


@pytest.mark.parametrize(
    ("shelf", "expected"),
    [
        (
            "{file: [{file_id: F-9, name: nine}]}",
            "tidy.toolemu.yaml:7:18: Mail.file, which shares its rows, has no row with the same file_id, name",
        ),
        (
            "{file: [{file_id: F-1, name: eins}]}",
            "tidy.toolemu.yaml:7:18: Mail.file, which shares its rows, has no row with the same name",
        ),
        (
            "{file: [{file_id: [F-1], name: one}]}",
            "not a row of Shelf.file: file_id: ",
        ),
    ],
    ids=["missing", "different", "not a row"],
)
def test_rows_that_would_be_lost_are_an_error(tmp_path: Path, shelf: str, expected: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load_case(case_of(tmp_path, shelf))
    assert expected in str(caught.value)


def with_rule(tmp_path: Path, shelf: str, old: str, new: str) -> Path:
    """Return a case whose toolkit Shelf declares something else."""
    path = case_of(tmp_path, shelf)
    toolkit = tmp_path / "toolkits" / "Shelf.toolkit.yaml"
    text = toolkit.read_text("utf-8")
    assert old in text
    toolkit.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def test_a_row_that_another_toolkit_cannot_have_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path = with_rule(tmp_path, "{}", "    shared: true\n", "    shared: true\n    unique: [name]\n")
    calls = [("Mail_Add", {"name": "one"}), ("Mail_Add", {"name": "two"}), ("Mail_List", {}), ("Shelf_List", {})]
    refused, added, *lists = played(path, calls).steps
    assert refused.observation.content == {"error": "Conflict: another entry has the same name"}
    assert refused.changes == ()
    assert [len(each.observation.content["files"]) for each in lists] == [2, 2]
    assert {each.entity for each in added.changes} == {"Mail.file", "Shelf.file"}


def test_rows_of_the_case_that_another_toolkit_cannot_have_are_reported(tmp_path: Path) -> None:
    path = with_rule(tmp_path, "{}", "    shared: true\n", "    shared: true\n    check: [\"name <> 'one'\"]\n")
    with pytest.raises(DocumentError) as caught:
        load_case(path)
    expected = (
        """Shelf.file: a row of Mail.file, which it shares, cannot be added: it breaks the rule "name <> 'one'\""""
    )
    assert expected in str(caught.value)


def test_a_field_of_the_other_toolkit_only_has_its_default_in_each_row(tmp_path: Path) -> None:
    path = with_rule(tmp_path, "{}", "folder: {type: string}", "folder: {type: string, default: inbox}")
    _, shelf = played(path, [("Mail_Add", {"name": "two"}), ("Shelf_List", {})]).steps
    assert [each["folder"] for each in shelf.observation.content["files"]] == ["inbox", "inbox"]
