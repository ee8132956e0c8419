"""Calls are executed on rows: they find, change and refuse what the toolkit declares, and nothing else."""

from __future__ import annotations

import gc
import sqlite3
import weakref
from datetime import UTC, datetime
from typing import Any

import pytest

from pytest_toolemu.core.case import User
from pytest_toolemu.core.world.database import Database
from pytest_toolemu.core.world.state_changes import StateEdit, apply_changes
from pytest_toolemu.core.world.world import World
from pytest_toolemu.core.world.world_state import StateDatabase, StateHistory, WorldBeginning
from pytest_toolemu.errors import OpenEntityError, WorldError
from tests.worlds.library import ATLAS, LIBRARY, NOVEL, POEMS, ROWS, plan_of_text, world_of

BOOK_FIELDS = (
    "fields: {book_id: {type: string}, isbn: {type: string}, title: {type: string}, language: {type: string}, "
    "tags: {type: array}, lendable: {type: boolean}, copies: {type: integer}}\n"
    "    required: [isbn, title, language, tags, lendable, copies]"
)
DUE = "date(:today, '+' || :days || ' days')"


def call(world: World, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return world.call(f"Library.{tool}", arguments, 0)


def titles(world: World, **arguments: Any) -> list[str]:
    return [book["title"] for book in call(world, "SearchBooks", limit=9, **arguments)["books"]]


# ---- search


def test_a_search_returns_rows_in_the_declared_order_as_json_values() -> None:
    result = call(world_of(), "SearchBooks", limit=9)
    assert result == {"books": [ATLAS, POEMS, NOVEL], "more": False, "total": 3}


def test_an_argument_named_like_a_field_selects_rows_with_that_value() -> None:
    assert titles(world_of(), language="es") == ["Atlas of Águilas"]
    assert titles(world_of(), language="e") == []


@pytest.mark.parametrize("text", ["NIGHT poems", "poem", "aguilas", "atlas maps", ""])
def test_a_text_search_ignores_case_and_accents_and_finds_all_words_in_any_field(text: str) -> None:
    expected = {"aguilas": 1, "atlas maps": 1, "": 3}
    assert len(titles(world_of(), text=text)) == expected.get(text, 1)


@pytest.mark.parametrize(
    ("title", "query", "is_found"),
    [
        ("Tram™ for İzmir", "tm izmir", True),
        ("STRASSE", "straße", True),
        ("ばば", "は", False),
        ("각하", "가", False),
        ("각하", "각", True),
    ],
)
def test_a_text_search_knows_the_letters_of_other_scripts(title: str, query: str, is_found: bool) -> None:
    world = world_of()
    call(world, "UpdateBook", book_id="B-2", title=title)
    assert titles(world, text=query) == ([title] if is_found else [])


def test_a_text_search_finds_letters_that_are_no_accented_letters_by_the_nearest_plain_one() -> None:
    world = world_of()
    title = "Y\N{LATIN SMALL LETTER DOTLESS I}ld\N{LATIN SMALL LETTER DOTLESS I}z, Łódź og Sørensen"
    call(world, "AddBook", title=title, language="tr")
    assert titles(world, text="yildiz lodz sorensen") == [title]


def test_a_search_finds_nothing_if_one_word_is_missing() -> None:
    assert titles(world_of(), text="night zebra") == []


@pytest.mark.parametrize(
    ("queries", "expected"),
    [
        (["atlas", "poems"], 2),
        (["the atlas", "last tram"], 1),
        (["atlas maps"], 1),
        (["zebra"], 0),
        ([], 3),
        (["", " "], 3),
    ],
)
def test_a_list_of_queries_finds_what_any_of_them_finds(queries: list[str], expected: int) -> None:
    library = LIBRARY.replace("        text: {type: string}\n", "        text: {type: array}\n", 1)
    world = world_of(library.replace("has(:text, title, tags)", "has_any(:text, title, tags)", 1))
    assert len(titles(world, text=queries)) == expected


def test_a_list_of_queries_can_have_to_be_found_completely() -> None:
    world = world_of(LIBRARY.replace("        text: {type: string}\n", "        text: {type: array}\n", 1))
    assert len(titles(world, text=["atlas", "maps"])) == 1
    assert titles(world, text=["atlas", "night"]) == []


def test_listed_items_can_be_the_values_of_one_field() -> None:
    item = LIBRARY[LIBRARY.index("          items:\n") : LIBRARY.index("        more: {type: boolean}\n")]
    library = LIBRARY.replace(item, "", 1).replace("like: SearchBooks.books", BOOK_FIELDS, 1)
    world = world_of(library.replace("      search: book\n", "      search: book\n      columns: tags\n", 1))
    assert call(world, "SearchBooks")["books"] == [ATLAS["tags"], POEMS["tags"]]


def test_limit_and_offset_cut_the_list_and_more_and_total_tell_so() -> None:
    first = call(world_of(), "SearchBooks")
    assert ([book["book_id"] for book in first["books"]], first["more"], first["total"]) == (["B-1", "B-3"], True, 3)
    rest = call(world_of(), "SearchBooks", offset=2)
    assert ([book["book_id"] for book in rest["books"]], rest["more"], rest["total"]) == (["B-2"], False, 3)


def test_the_operation_can_state_the_limit_of_an_argument_without_a_default() -> None:
    library = LIBRARY.replace("limit: {type: integer, default: 2}", "most: {type: integer}", 1)
    world = world_of(library.replace("      search: book\n", "      search: book\n      limit: most 1\n", 1))
    first = call(world, "SearchBooks")
    assert (len(first["books"]), first["more"], first["total"]) == (1, True, 3)
    assert len(call(world, "SearchBooks", most=9)["books"]) == 3


# ---- one row


def test_get_returns_the_row_and_computed_members() -> None:
    world = world_of()
    call(world, "LendBook", book_id="B-2", reader="Tove")
    assert call(world, "GetBook", book_id="B-2") == {
        "title": "The Last Tram",
        "tags": ["novel", "night"],
        "lendable": True,
        "loans": 1,
    }


def test_an_unknown_key_is_the_declared_error_with_the_value() -> None:
    assert call(world_of(), "GetBook", book_id="B-9") == {"error": "NotFound: there is no book with the book_id 'B-9'"}


def test_an_unknown_key_of_an_open_entity_is_left_to_the_emulator() -> None:
    world = world_of(LIBRARY.replace("    order: title\n", "    order: title\n    open: true\n"))
    with pytest.raises(OpenEntityError, match="no book with the book_id 'B-9' among the rows"):
        call(world, "GetBook", book_id="B-9")


def test_a_created_row_gets_a_key_of_the_pattern_and_is_found() -> None:
    world = world_of()
    created = call(world, "AddBook", isbn="444", title="Salt", tags=["sea"])
    assert created["book_id"].startswith("B-")
    assert len(created["book_id"]) == 5
    assert created == {"book_id": created["book_id"], "title": "Salt", "status": "added"}
    assert titles(world, text="sea") == ["Salt"]


def test_a_pattern_with_few_keys_gets_more_digits() -> None:
    world = world_of(LIBRARY.replace('id: "B-###"', 'id: "B-#"'))
    keys = [call(world, "AddBook", isbn=f"{number}", title="Salt")["book_id"] for number in range(30)]
    assert len(set(keys)) == 30
    assert max(map(len, keys)) == 4


def test_results_may_refer_to_definitions() -> None:
    inline = "tags: {type: array, items: {type: string}}\n        lendable: {type: boolean}\n        loans: {type: integer}\n"
    text = LIBRARY.replace(inline, inline.replace("{type: array, items: {type: string}}", '{$ref: "#/$defs/tags"}'))
    text = text.replace(
        "      required: [title, tags, lendable, loans]\n",
        "      required: [title, tags, lendable, loans]\n      $defs: {tags: {type: array, items: {type: string}}}\n",
    )
    assert "$defs" in text
    assert call(world_of(text), "GetBook", book_id="B-2")["tags"] == ["novel", "night"]


def test_the_case_can_name_the_keys_of_new_rows() -> None:
    world = world_of(ids={"Library.book": ["B-77"]})
    keys = [call(world, "AddBook", isbn=isbn, title="Salt")["book_id"] for isbn in ("444", "555")]
    assert keys[0] == "B-77"
    assert keys[1] != "B-77"


def test_a_call_that_fails_uses_no_key() -> None:
    refused, accepted = (world_of(ids={"Library.book": ["B-77"]}) for _ in range(2))
    assert "error" in call(refused, "AddBook", isbn="111", title="Copy")
    for world in (refused, accepted):
        keys = [call(world, "AddBook", isbn=isbn, title="Salt")["book_id"] for isbn in ("444", "555")]
        assert keys == ["B-77", "B-929"]
        assert "error" in call(world, "AddBook", isbn="111", title="Copy")


def test_a_named_key_that_a_row_has_meanwhile_is_not_used_again() -> None:
    world = world_of(ids={"Library.book": ["B-77", "B-78"]})
    values = {name: value for name, value in {**NOVEL, "isbn": "777"}.items() if name != "book_id"}
    assert world.edit("Library", [StateEdit(change="add", entity="book", key="B-77", values=values)]) == []
    assert call(world, "AddBook", isbn="444", title="Salt")["book_id"] == "B-78"


@pytest.mark.parametrize("kind", ["number", "[integer, 'null']", "integer"])
def test_a_key_that_is_a_number_counts(kind: str) -> None:
    text = LIBRARY.replace("loan_id: {type: string}", f"loan_id: {{type: {kind}}}")
    loan = {"loan_id": 41, "book_id": "B-1", "due_on": "2026-06-01", "reader": "Ada"}
    world = world_of(text, {"Library": {"book": [NOVEL], "loan": [loan]}})
    assert call(world, "LendBook", book_id="B-2", reader="Tove")["loan_id"] == 42
    world.take_changes()
    edits = [StateEdit(change="change", entity="loan", key="42", values={"reader": "Ida"}),
             StateEdit(change="remove", entity="loan", key="41")]  # fmt: skip
    assert world.edit("Library", edits) == []
    assert {(change.key, change.change) for change in world.take_changes()} == {(42, "changed"), (41, "removed")}


def test_a_model_finds_keys_that_are_texts_or_numbers_with_fractions() -> None:
    text = LIBRARY.replace("loan_id: {type: string}", "loan_id: {type: [string, number]}")
    loan = {"book_id": "B-1", "due_on": "2026-06-01", "reader": "Ada"}
    world = world_of(text, {"Library": {"loan": [{**loan, "loan_id": key} for key in (1.5, "2.5", 7, "8")]}})
    assert (
        world.edit("Library", [StateEdit(change="remove", entity="loan", key=key) for key in ("1.5", "2.5", "7", "8")])
        == []
    )
    assert world.edit("Library", [StateEdit(change="add", entity="loan", key="9", values=loan)]) == []
    assert [row["loan_id"] for row in world.rows()["Library"]["loan"]] == ["9"]


@pytest.mark.parametrize(("kind", "pattern"), [("integer", ""), ("string", '    id: "L#"\n')])
def test_a_statement_can_make_several_keys_before_their_rows_exist(kind: str, pattern: str) -> None:
    text = LIBRARY.replace("loan_id: {type: string}", f"loan_id: {{type: {kind}}}").replace(
        "    refs: {book_id: book}\n", f"    refs: {{book_id: book}}\n{pattern}"
    )
    copies = "INSERT INTO loan SELECT * FROM (SELECT new_id('loan'), book_id, due_on, reader FROM loan ORDER BY 2)"
    text = text.replace("then: [", f'then: ["{copies}", ')
    loan = {"loan_id": 7 if kind == "integer" else "L-1", "book_id": "B-1", "due_on": "2026-06-01", "reader": "Ada"}
    ids = {"Library.loan": [8 if kind == "integer" else "L-2"]}
    world = world_of(text, {"Library": {"book": [{**NOVEL, "copies": 9}], "loan": [loan]}}, ids)
    assert "error" in call(world, "LendBook", book_id="B-9", reader="Tove")
    for _ in range(2):
        assert "error" not in call(world, "LendBook", book_id="B-2", reader="Tove")
    keys = {row["loan_id"] for row in world.rows()["Library"]["loan"]}
    assert len(keys) == 10
    assert kind == "string" or keys == {*range(7, 17)}


def test_a_statement_that_leaves_a_row_without_a_key_is_an_error_of_the_declaration() -> None:
    then = 'then: ["UPDATE book SET copies = copies - 1 WHERE book_id = :book_id"]'
    world = world_of(LIBRARY.replace(then, "then: [INSERT INTO book (title) VALUES ('Salt')]"))
    with pytest.raises(
        WorldError, match=r"the operation failed: NOT NULL constraint failed: book\.book_id; correct it"
    ):
        call(world, "LendBook", book_id="B-2", reader="Tove")
    assert world.take_changes() == ()


def test_equal_worlds_and_calls_give_equal_keys() -> None:
    one, other = (call(world_of(), "AddBook", isbn="444", title="Salt") for _ in range(2))
    assert one == other


def test_an_update_changes_the_given_fields_only() -> None:
    world = world_of()
    assert call(world, "UpdateBook", book_id="B-3", title="Day Poems") == {"book_id": "B-3", "title": "Day Poems"}
    books = call(world, "SearchBooks", limit=9)["books"]
    assert {**POEMS, "title": "Day Poems"} in books
    assert [book for book in books if book["book_id"] != "B-3"] == [ATLAS, NOVEL]


def test_the_default_of_an_absent_argument_is_stored_only_if_set_says_so() -> None:
    default = LIBRARY.replace(
        "lendable: {type: boolean}, copies: {type: integer}}",
        "lendable: {type: boolean, default: true}, copies: {type: integer, default: 9}}",
    )
    assert default != LIBRARY
    kept, stored = (
        world_of(default),
        world_of(default.replace("{update: book}", '{update: book, set: {copies: ":copies"}}')),
    )
    for world in (kept, stored):
        call(world, "UpdateBook", book_id="B-1", title="Maps", lendable=None)
    assert [change.after for change in kept.take_changes()] == [{"title": "Maps"}]
    assert [change.after for change in stored.take_changes()] == [{"title": "Maps", "copies": 9}]
    call(kept, "UpdateBook", book_id="B-1", copies=3)
    assert [change.after for change in kept.take_changes()] == [{"copies": 3}]


def test_a_row_that_conditions_choose_can_be_named_like_one_that_an_argument_names() -> None:
    chosen = (
        "{update: book, key: none, where: {which: fold(book_id) = :book_id}, set: {copies: book.copies + 5, "
        "book_id: book.book_id}, unused: [copies], fail: {Conflict: NOT book.lendable}}"
    )
    world = world_of(LIBRARY.replace("{update: book}", chosen))
    assert call(world, "UpdateBook", book_id="b-2", title="Tides")["title"] == "Tides"
    assert call(world, "UpdateBook", book_id="b-1") == {"error": "Conflict: The values are not possible."}
    assert [change.after for change in world.take_changes()] == [{"title": "Tides", "copies": 6}]


def test_a_list_of_keys_is_all_or_nothing() -> None:
    world = world_of()
    assert "error" in call(world, "RemoveBooks", book_ids=["B-1", "B-9"])
    assert len(titles(world)) == 3
    assert call(world, "RemoveBooks", book_ids=["B-1", "B-3", "B-1"]) == {"removed": 2}
    assert titles(world) == ["The Last Tram"]


OF_KEYS = """\
    parameters:
      type: object
      properties:
        book_id: {type: array, items: {type: string}}
        text: {type: string}
        language: {type: string}"""


@pytest.mark.parametrize("find", ["", "      find: {book_id: book}\n"])
def test_a_search_lists_the_rows_of_all_keys_in_a_list(find: str) -> None:
    text = LIBRARY.replace(
        "    parameters:\n      type: object\n      properties:\n        text: {type: string}\n"
        "        language: {type: string}", OF_KEYS, 1,
    ).replace("where: {text:", 'where: {book_id: "includes(:book_id, book_id)", text:')  # fmt: skip
    text = text.replace("      search: book\n", f"      search: book\n{find}").replace(
        "        total: {type: integer}\n      required: [books, more, total]\n",
        "        total: {type: integer}\n      required: [books, more, total]\n    errors: {NotFound: Unknown.}\n",
    )
    world = world_of(text)
    assert titles(world, book_id=["B-3", "B-1"]) == ["Atlas of Águilas", "Night Poems"]
    assert titles(world, book_id=[]) == []
    assert len(titles(world)) == 3
    unknown = call(world, "SearchBooks", book_id=["B-3", "B-9"])
    assert unknown == ({"error": "NotFound: there is no book with the book_id 'B-9'"} if find else
                       {"books": [POEMS], "more": False, "total": 1})  # fmt: skip


# ---- the key of the row that a call is about


def test_statements_refer_to_the_key_of_any_row_as_id() -> None:
    loans = 'l.book_id = :book_id"}'
    text = LIBRARY.replace(loans, 'l.book_id = :id"}').replace(
        "EXISTS (SELECT 1 FROM loan l WHERE l.book_id = :book_ids)",
        "EXISTS (SELECT 1 FROM loan l WHERE l.book_id = :id)",
    )
    text = text.replace(
        'show: {removed: ":count"}',
        """show: {removed: ":count"}\n      then: ["UPDATE book SET copies = copies + 1 WHERE title > :id AND :id = 'B-1'"]""",
    )
    world = world_of(text)
    call(world, "LendBook", book_id="B-2", reader="Tove")
    assert call(world, "GetBook", book_id="B-2")["loans"] == 1
    assert call(world, "RemoveBooks", book_ids=["B-2"]) == {"error": "Conflict: A book is lent."}
    assert call(world, "RemoveBooks", book_ids=["B-1"]) == {"removed": 1}
    assert [book["copies"] for book in call(world, "SearchBooks")["books"]] == [1, 1]


def test_a_row_that_an_update_gives_another_key_is_found_and_shown_by_it() -> None:
    old = "properties: {book_id: {type: string}, title: {type: string}, lendable: {type: boolean}, copies: {type: integer}}"
    assert old in LIBRARY
    text = LIBRARY.replace(old, old.replace("title:", "new_key: {type: string}, title:")).replace(
        "{update: book}",
        """
      update: book
      set: {book_id: "coalesce(:new_key, book.book_id)"}
      then: ["UPDATE loan SET book_id = :id WHERE book_id = :book_id"]
      show: {book_id: ":id", title: "book.title || ' ' || book.copies"}""",
    )
    world = world_of(text)
    call(world, "LendBook", book_id="B-2", reader="Tove")
    assert call(world, "UpdateBook", book_id="B-2", new_key="B-7", title="Tides") == {
        "book_id": "B-7",
        "title": "Tides 0",
    }
    assert call(world, "UpdateBook", book_id="B-7", copies=4) == {"book_id": "B-7", "title": "Tides 4"}
    assert call(world, "GetBook", book_id="B-7")["loans"] == 1


# ---- failures


def test_a_guard_fails_with_its_own_message_and_changes_nothing() -> None:
    world = world_of()
    assert call(world, "LendBook", book_id="B-1", reader="Tove") == {
        "error": "NotLendable: This book stays in the library."
    }
    assert call(world, "LendBook", book_id="B-3", reader="Tove") == {"error": "NotLendable: No copy is left."}
    assert world.take_changes() == ()


def test_the_first_guard_that_is_true_decides_and_later_ones_are_not_evaluated() -> None:
    failing = """when: "json_extract(book.title, '$.x') = :reader","""
    world = world_of(LIBRARY.replace("when: book.copies = 0,", failing))
    assert call(world, "LendBook", book_id="B-1", reader="Tove") == {
        "error": "NotLendable: This book stays in the library."
    }
    with pytest.raises(WorldError, match="malformed JSON"):
        call(world, "LendBook", book_id="B-2", reader="Tove")


def test_a_guard_without_a_message_says_the_declared_condition() -> None:
    world = world_of()
    call(world, "LendBook", book_id="B-2", reader="Tove")
    assert call(world, "RemoveBooks", book_ids=["B-2"]) == {"error": "Conflict: A book is lent."}


def test_a_row_that_breaks_a_rule_of_its_entity_is_refused() -> None:
    world = world_of()
    assert call(world, "AddBook", isbn="111", title="Copy") == {"error": "Conflict: another entry has the same isbn"}
    assert call(world, "UpdateBook", book_id="B-2", copies=-1) == {"error": "Conflict: the values are not possible"}


def test_a_failing_statement_is_an_error_of_the_harness_and_changes_nothing() -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 1 FROM n WHERE i < 0"
    then = 'then: ["UPDATE book SET copies = copies - 1 WHERE book_id = :book_id"]'
    world = world_of(LIBRARY.replace(then, f'{then[:-1]}, "UPDATE book SET copies = 5 WHERE EXISTS ({endless})"]'))
    with pytest.raises(WorldError, match=r"Library\.LendBook: the operation failed: interrupted; correct it"):
        call(world, "LendBook", book_id="B-2", reader="Tove")
    assert world.take_changes() == ()


@pytest.mark.parametrize("value", ["'; DROP TABLE book; --", "\x00", "%", "ß" * 100_000, "[1, 2", '{"a": 1}'])
def test_text_of_agents_is_stored_as_it_is(value: str) -> None:
    world = world_of()
    call(world, "UpdateBook", book_id="B-2", title=value)
    assert call(world, "GetBook", book_id="B-2")["title"] == value


def test_numbers_beyond_the_range_of_the_database_do_not_end_the_case() -> None:
    assert "error" not in call(world_of(), "UpdateBook", book_id="B-2", copies=10**30)


# ---- time and state


def test_time_advances_by_a_minute_for_each_call() -> None:
    text = LIBRARY.replace(DUE, "substr(:now, 12, 5 + 0 * :days)").replace(
        "{type: string, format: date}", "{type: string}"
    )
    world = world_of(text)
    assert world.call("Library.LendBook", {"book_id": "B-2", "reader": "Tove"}, 7)["due_on"] == "10:07"


def test_the_time_of_the_machine_is_never_used() -> None:
    for clock in ("date('now')", "date()", "strftime('%Y')", "datetime(' NOW ')"):
        world = world_of(LIBRARY.replace(DUE, f"coalesce({clock}, '2000-01-0' || min(:days, 1))"))
        assert call(world, "LendBook", book_id="B-2", reader="Tove")["due_on"] == "2000-01-01"


def test_changes_are_told_row_by_row() -> None:
    world = world_of()
    loan = call(world, "LendBook", book_id="B-2", reader="Tove")
    assert [change.model_dump() for change in world.take_changes()] == [
        {
            "entity": "Library.book",
            "key": "B-2",
            "change": "changed",
            "before": {"copies": 1},
            "after": {"copies": 0},
        },
        {
            "entity": "Library.loan",
            "key": loan["loan_id"],
            "change": "added",
            "before": {},
            "after": {**loan, "reader": "Tove"},
        },
    ]
    assert world.take_changes() == ()


@pytest.mark.parametrize("keys", [["B-1"], ["B-2"], ["B-3"], ["B-1", "B-3"], ["B-1", "B-2", "B-3"]])
def test_removed_rows_are_found_wherever_they_were(keys: list[str]) -> None:
    world = world_of()
    call(world, "RemoveBooks", book_ids=keys)
    changes = world.take_changes()
    assert [(change.key, change.change) for change in changes] == [(key, "removed") for key in keys]
    assert apply_changes(world.beginning.initial, changes, world.beginning.keys) == world.rows()


# ---- databases


def test_a_world_is_freed_after_its_run() -> None:
    world = world_of()
    reference = weakref.ref(world)
    world.call("Library.LendBook", {"book_id": "B-2", "reader": "Tove"}, 0)
    del world
    assert reference() is None


def test_nothing_of_a_world_is_left_in_the_database_that_the_next_world_gets() -> None:
    plan_of_text.cache_clear()
    calls: list[tuple[str, dict[str, Any]]] = [
        ("AddBook", {"isbn": "9", "title": "Tides"}),
        ("RemoveBooks", {"book_ids": ["B-3"]}),
    ]
    first = world_of()
    initial, (database,) = first.rows(), first._databases.values()
    answers = [call(first, tool, **arguments) for tool, arguments in calls]
    assert first.rows() != initial
    del first
    assert database.functions == {}
    second = world_of()
    assert [*second._databases.values()] == [database]
    assert second.rows() == second.beginning.initial == initial
    assert second.take_changes() == ()
    assert [call(second, tool, **arguments) for tool, arguments in calls] == answers


def test_worlds_at_the_same_time_have_databases_of_their_own_of_which_few_are_kept() -> None:
    plan_of_text.cache_clear()
    worlds = [world_of() for _ in range(6)]
    databases = [database for world in worlds for database in world._databases.values()]
    assert len({id(database) for database in databases}) == 6
    call(worlds[0], "RemoveBooks", book_ids=["B-1"])
    assert [len(titles(world)) for world in worlds] == [2, 3, 3, 3, 3, 3]
    worlds.clear()
    assert [is_open(database) for database in databases].count(True) == 2


def test_a_database_is_closed_if_its_world_ends_within_a_call_or_its_toolkit_is_freed() -> None:
    plan_of_text.cache_clear()
    interrupted, finished = world_of(), world_of()
    (first,), (second,) = (world._databases.values() for world in (interrupted, finished))
    first.execute("BEGIN")
    del interrupted, finished
    assert [is_open(first), is_open(second)] == [False, True]
    plan_of_text.cache_clear()
    gc.collect()
    assert not is_open(second)


def is_open(database: Database) -> bool:
    try:
        database.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return False
    return True


def test_worlds_with_the_same_beginning_do_not_see_the_changes_of_each_other() -> None:
    beginning = WorldBeginning({"Library": plan_of_text(LIBRARY)}, ROWS)
    changed, unchanged = (
        World(beginning, ids={}, user=User(), now=datetime(2026, 5, 4, tzinfo=UTC), seed="a-case") for _ in range(2)
    )
    first_rows = changed.rows()
    assert "error" not in changed.call("Library.LendBook", {"book_id": "B-2", "reader": "Tove"}, 0)
    assert changed.take_changes() != ()
    assert changed.rows() != first_rows
    assert unchanged.rows() == changed.beginning.initial == unchanged.beginning.initial == first_rows


def test_each_world_begins_with_its_rows_whatever_earlier_ones_did_to_the_database_that_it_uses() -> None:
    plan_of_text.cache_clear()
    beginning, without_rows = (
        WorldBeginning({"Library": plan_of_text(LIBRARY)}, {"Library": rows}) for rows in (ROWS["Library"], {})
    )
    databases = set()
    for start, lends in (
        (beginning, False),
        (beginning, True),
        (beginning, False),
        (without_rows, False),
        (beginning, False),
    ):
        world = World(start, ids={}, user=User(), now=datetime(2026, 5, 4, tzinfo=UTC), seed="a-case")
        assert world.rows() == world.beginning.initial == start.initial
        databases.add(world._databases["Library"])
        if lends:
            assert "error" not in call(world, "LendBook", book_id="B-2", reader="Tove")
        del world
    assert len(databases) == 1


def test_runs_that_share_a_database_for_queries_each_see_their_own_rows() -> None:
    world = world_of()
    before = StateHistory(world.beginning, [])
    assert "error" not in call(world, "LendBook", book_id="B-2", reader="Tove")
    after = StateHistory(world.beginning, [world.take_changes()])
    queries = ("SELECT reader FROM loan", "SELECT reader FROM initial.Library.loan", "SELECT count(*) AS n FROM book")
    seen = [
        [history.select(query, calls) for query in queries] for history, calls in ((before, 0), (after, 1), (after, 0))
    ]
    assert seen[0] == seen[2]
    assert {"reader": "Tove"} in seen[1][0]
    assert seen[1][1:] == seen[0][1:]


@pytest.mark.parametrize("name", ["Library.book", '"Library"."BOOK"', "[book]", "initial.Library.book"])
def test_queries_find_rows_however_they_write_the_name_of_a_table(name: str) -> None:
    world = world_of()
    state = StateDatabase(world.plans, world.beginning.initial)
    assert state.problem(f"SELECT book_id FROM {name}") is None
    found = state.select(f"SELECT book_id FROM {name}", world.beginning.initial)
    assert len(found) == len(world.beginning.initial["Library"]["book"])


def test_a_nul_hides_nothing_from_a_query() -> None:
    world = world_of()
    call(world, "AddBook", isbn="444", title="Salt\x00 and the code", tags=["a\x00code", "\\\\u0000"])
    assert world.rows()["Library"]["book"][-1]["title"] == "Salt\x00 and the code"
    history = StateHistory(world.beginning, [world.take_changes()])
    for condition in ("title LIKE '%code'", "title GLOB '*code'", "length(title) = 18",
                      "tags ->> 0 LIKE '%code'", "instr(tags ->> 1, 'u0000')"):  # fmt: skip
        query = f"SELECT title FROM Library.book WHERE isbn = '444' AND {condition}"
        assert history.select(query) == [{"title": "Salt\ufffd and the code"}], condition


def test_the_state_that_checks_query_is_freed_after_its_run() -> None:
    world = world_of()
    state = StateDatabase(world.plans, world.beginning.initial)
    assert state.select("SELECT 1 WHERE 'tram' REGEXP '^tr'", world.beginning.initial) == [{"1": 1}]
    reference = weakref.ref(state)
    del state
    gc.collect()
    assert reference() is None
