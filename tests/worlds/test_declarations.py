"""Mistakes in declarations are found when a file is loaded, with the place, and the nearest name that exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.core.case_loading import load_toolkit
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.core.world.toolkit_plan import declaration_problems_in_file, planned
from pytest_toolemu.errors import DocumentError, UsageError
from tests.worlds.library import LIBRARY, toolkit_of


def problem(tmp_path: Path, old: str, new: str) -> str:
    """Return the only message about the toolkit after a change, as ``line: message``."""
    assert old in LIBRARY
    path = tmp_path / "Library.toolkit.yaml"
    path.write_text(LIBRARY.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        load_toolkit(path)
    return "\n".join(message for _, _, message in caught.value.problems)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("like: SearchBooks.books", "like: SearchBook.books", "the toolkit has no tool 'SearchBook'; did you mean"),
        ("like: SearchBooks.books", "like: SearchBooks.book", "'SearchBooks.book' has no fields; name a tool"),
        ("    unique: [isbn]", "    without: [isbm]", "'like' gives no field 'isbm'; did you mean 'isbn'?"),
        ("key: book_id", "key: bookid", "the entity has no field 'bookid'; did you mean 'book_id'?"),
        ("unique: [isbn]", "unique: [isbm]", "the entity has no field 'isbm'; did you mean 'isbn'?"),
        ("refs: {book_id: book}", "refs: {book_id: books}", "the toolkit has no entity 'books'; did you mean 'book'?"),
        ("refs: {book_id: book}", "refs: {bok_id: book}", "the entity has no field 'bok_id'; did you mean 'book_id'?"),
        ("search: book", "search: boook", "the toolkit has no entity 'boook'; did you mean 'book'?"),
        ("      search: book\n", "      search: book\n      limit: limits 5\n",
         "the tool has no argument 'limits'; did you mean 'limit'?"),
        ("      search: book\n", "      search: book\n      limit: limit ten\n",
         "expected another value; for example, limit: page_size 10"),
        ("find: {book_id: book}", "find: {book: book}", "the tool has no argument 'book'; did you mean 'book_id'?"),
        ("find: {book_id: book}", "find: {book_id: bok}", "the toolkit has no entity 'bok'; did you mean 'book'?"),
        ("find: {book_id: book}", "find: {book_id: book X}", "the alias 'X' is not valid; use lowercase letters, digits, and _"),
        ("key: book_ids", "key: books_ids", "the tool has no argument 'books_ids'; did you mean 'book_ids'?"),
        ("fail: {Conflict:", "fail: {Conflct:", "the tool declares no error 'Conflct'; did you mean 'Conflict'?"),
        ("lendable: true}", "lendabel: true}", "the entity has no field 'lendabel'; did you mean 'lendable'?"),
        ("{loans: \"SELECT", "{loan: \"SELECT", "the result has no member 'loan'; did you mean 'loans'?"),
        ("{removed: \":count\"}", "{removed: \":cuont\"}", "SQL refers to :cuont, and the tool has no such argument"),
        ("has(:text, title, tags)", "has(:text, titel)", "SQL: no such column: titel; did you mean 'title'?"),
        ("has(:text, title, tags)", "hass(:text, title)", "SQL: no such function: hass; did you mean 'has'?"),
        ("FROM loan l WHERE l.book_id = :book_id\"", "FROM loans\"", "SQL: no such table: loans; did you mean 'loan'?"),
        ("has(:text, title, tags)", "title = ", "SQL: near \")\": syntax error"),
        ("order: title", "order: titel", "SQL: no such column: titel; did you mean 'title'?"),
        ("      show: {removed: \":count\"}\n", "", "the member 'removed' of the result has no value; add it to 'show'"),
        ("set: {tags: \"coalesce(:tags, '[]')\", lendable: true}", "set: {lendable: true}",
         "created rows have no 'tags' if the argument is absent; add it to 'set'"),
        ("set: {tags: \"coalesce(:tags, '[]')\", lendable: true}", "set: {tags: \"'[]'\"}",
         "created rows have no 'lendable', which every book has; add it to 'set'"),
        ("where: {text: \"has(:text, title, tags)\"}", "where: {}",
         "the argument 'text' has no effect; use it, or add it to 'unused'"),
        ("errors: {NotFound: The book is unknown.}\n    effect: read", "effect: read",
         "a key may be unknown, and the tool declares no error for that; add NotFound to its errors"),
        ("operation: {update: book}", "operation: {update: book, delete: book}",
         "an operation has at most one verb, not 'update' and 'delete'"),
        ("operation: {update: book}", "operation: {unused: [title]}",
         "an operation has a verb (search, get, create, update, delete), or 'then' or 'show'"),
        ("      search: book\n", "      search: book\n      columns: [title, tag]\n",
         "the entity has no field 'tag'; did you mean 'tags'?"),
        ("      search: book\n", "      search: book\n      columns: titel\n",
         "the entity has no field 'titel'; did you mean 'title'?"),
        ("      search: book\n", "      search: book\n      set: {title: \"'x'\"}\n",
         "'set' has no effect with 'search'; remove it"),
        ("operation: {update: book}", "operation: {update: book, fail: {Conflict: boook.copies > 1}}",
         "SQL: no such column: boook.copies; did you mean 'copies'?"),
        ("    unique: [isbn]", "    fields: {shelf: {typ: string}}", "shelf: unknown JSON Schema keyword 'typ'; did you mean 'type'?"),
        ("operation: {update: book}", "operation: {update: book, columns: [title]}",
         "UpdateBook: 'columns' has no effect with 'update'; remove it"),
        ("operation: {update: book}", "operation: {update: book, order: title}",
         "UpdateBook: 'order' has no effect with 'update'; remove it"),
        ("operation: {update: book}", "operation: {update: book, where: {x: copies > 0}}",
         "'where' has no effect with 'update'; remove it"),
        ("operation: {update: book}", "operation: {update: book, replace: true}", "'replace' has no effect with 'update'; remove it"),
        ("      search: book\n", "      search: book\n      key: language\n",
         "'key' has no effect with 'search'; remove it"),
        ("book_id: {type: string}, reader", "book_id: {type: integer}, reader",
         "the argument 'book_id' is number, and the key 'book_id' is string"),
        ("book_ids: {type: array, items: {type: string}}", "book_ids: {type: array, items: {type: number}}",
         "the argument 'book_ids' is number, and the key 'book_id' is string"),
        ("parameters: {type: object, properties: {book_id: {type: string}}, required: [book_id]}",
         "parameters: {type: object, properties: {book_id: {type: array, items: {type: string}}}, required: [book_id]}",
         "GetBook: the argument 'book_id' is a list of keys, and 'get' returns one row; use 'search'"),
        ("        language: {type: string}\n        limit", "        tags: {type: string}\n        limit",
         "the argument 'tags' is string, and the field 'tags' is array"),
        ("book_id: {type: string}, title: {type: string}, lendable: {type: boolean}",
         "book_id: {type: string}, title: {type: number}, lendable: {type: boolean}",
         "the argument 'title' is number, and the field 'title' is string"),
        ("fields: {reader: {type: string}}", "fields: {reader: {type: string}, book_id: {type: integer}}",
         "the field 'book_id' is number, and the key of book is string"),
        ("              book_id: {type: string}\n", "              book_id: {type: integer}\n",
         "'id' is a pattern of text, and 'book_id' is a number, which counts; remove it"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_the_nearest_name(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert message in problem(tmp_path, old, new)


def test_the_toolkit_of_a_record_which_holds_every_default_is_valid() -> None:
    stored = Toolkit.model_validate_json(toolkit_of().model_dump_json(by_alias=True))
    assert declaration_problems_in_file(stored) == []


def test_the_toolkit_of_a_record_may_have_keys_without_an_effect() -> None:
    assert planned(toolkit_of(LIBRARY.replace("{update: book}", "{update: book, columns: [title]}")))[1] == []


@pytest.mark.parametrize(
    "wrong", ["fail: {Conflict: [{when: book.copies, sya: x}]}", "set: {title: ''}", "set: {title: {a: b}}"]
)
def test_a_value_that_may_be_text_or_a_number_is_reported_once(tmp_path: Path, wrong: str) -> None:
    assert "number" not in problem(tmp_path, "operation: {update: book}", f"operation: {{update: book, {wrong}}}")


def test_a_tool_that_finds_open_entities_needs_no_error_for_unknown_keys(tmp_path: Path) -> None:
    without_error = LIBRARY.replace("errors: {NotFound: The book is unknown.}\n    effect: read", "effect: read", 1)
    assert without_error != LIBRARY
    path = tmp_path / "Library.toolkit.yaml"
    path.write_text(without_error.replace("    order: title\n", "    order: title\n    open: true\n"), encoding="utf-8")
    assert load_toolkit(path).entities["book"].open


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH 'x.db' AS x",
        "PRAGMA user_version = 1",
        "DROP TABLE book",
        "CREATE TABLE x (y)",
        "CREATE TEMP TRIGGER t AFTER INSERT ON book BEGIN SELECT 1; END",
        "DELETE FROM sqlite_master",
        "VACUUM INTO 'x.db'",
        "INSERT INTO book (title) VALUES (load_extension('x'))",
        "INSERT INTO book (title) VALUES (random())",
        "INSERT INTO book (title) SELECT name FROM sqlite_master",
    ],
)
def test_statements_reach_nothing_but_the_tables_of_the_toolkit(tmp_path: Path, statement: str) -> None:
    then = 'then: ["UPDATE book SET copies = copies - 1 WHERE book_id = :book_id"]'
    text = problem(tmp_path, then, f'then: ["{statement}"]')
    assert "SQL: " in text or "a statement begins with INSERT, UPDATE, or DELETE" in text


def test_a_statement_is_one_statement(tmp_path: Path) -> None:
    then = 'then: ["UPDATE book SET copies = copies - 1 WHERE book_id = :book_id"]'
    assert "one statement at a time" in problem(tmp_path, then, 'then: ["DELETE FROM loan; DELETE FROM book"]')


def test_a_problem_has_the_line_of_its_part(tmp_path: Path) -> None:
    path = tmp_path / "Library.toolkit.yaml"
    path.write_text(LIBRARY.replace("has(:text, title, tags)", "has(:text, titel)"), encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        load_toolkit(path)
    line = 1 + LIBRARY.splitlines().index('      where: {text: "has(:text, title, tags)"}')
    assert str(caught.value).startswith(f"{path}:{line}:14: SearchBooks: SQL: no such column: titel")


def test_an_sqlite_that_is_too_old_is_reported_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "Library.toolkit.yaml"
    path.write_text(LIBRARY, encoding="utf-8")
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 37, 2))
    monkeypatch.setattr("sqlite3.sqlite_version", "3.37.2")
    with pytest.raises(UsageError) as caught:
        load_toolkit(path)
    assert str(caught.value) == (
        "Python was built with SQLite 3.37.2, and toolkits with entities need 3.38 or newer; use a newer build of Python"
    )
