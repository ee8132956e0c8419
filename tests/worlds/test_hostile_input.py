"""SQL of toolkits and arguments of agents are untrusted: they neither block the harness nor break a run."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.analysis.rejudge import CurrentCases
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.run import Call, Run, Trajectory, Verdict
from pytest_toolemu.core.world.database import Database
from pytest_toolemu.core.world.state_changes import StateEdit
from pytest_toolemu.core.world.toolkit_plan import planned
from pytest_toolemu.core.world.world import World, beginning_of
from pytest_toolemu.core.world.world_state import StateHistory
from pytest_toolemu.emulators.layers import OfflineEmulator, RowsEmulator
from pytest_toolemu.errors import DocumentError, UsageError, WorldError
from pytest_toolemu.evaluators.checks import ChecksEvaluator
from tests.worlds.library import LIBRARY, toolkit_of, world_of
from tests.worlds.test_case_rows import CASE, message, write

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"


def changed(*replacements: tuple[str, str]) -> str:
    text = LIBRARY
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


def call(world: World, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return world.call(f"Library.{tool}", arguments, 0)


# ---- SQL of toolkits


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("order: title", f'order: "1 LIMIT ({ENDLESS} SELECT count(*) FROM c)"', "SQL: interrupted"),
        ('"copies >= 0"', '"length(zeroblob(900000000)) > 0"', "not authorized to use function: zeroblob"),
        ('"copies >= 0"', '"random() > 0"', "not authorized to use function: random"),
        ('"copies >= 0"', "\"load_extension('x') > 0\"", "not authorized to use function: load_extension"),
    ],
)
def test_conditions_and_orders_of_tables_are_limited_too(old: str, new: str, reason: str) -> None:
    ((loc, text),) = planned(toolkit_of(changed((old, new))))[1]
    assert loc in {("entities", "book", "order"), ("entities", "book")}
    assert reason in text


def test_a_function_that_makes_keys_does_not_lift_the_limit_of_the_statement_that_calls_it() -> None:
    endless = f"""copies < ({ENDLESS} SELECT count(new_id('book') || x) FROM c) OR :text"""
    world = world_of(changed(('"has(:text, title, tags)"', f'"{endless}"')))
    with pytest.raises(WorldError, match="SearchBooks: the operation failed"):
        call(world, "SearchBooks", text="a")


def test_entities_can_have_the_names_of_sql_keywords() -> None:
    text = changed(
        ("FROM loan l WHERE", "FROM [order] l WHERE"),
        ("  loan:\n", "  order:\n"),
        ("create: loan", "create: order"),
        ("{book_id: book}\n      fail", "{book_id: book group}\n      fail"),
        ("NOT book.lendable", "0"),
        ("book.copies = 0", "'[group].copies = 0'"),
    ).replace("when: 0", "when: '0'")
    world = world_of(text)
    assert call(world, "LendBook", book_id="B-2", reader="Tove")["book_id"] == "B-2"
    assert [change.entity for change in world.take_changes()] == ["Library.book", "Library.order"]
    assert call(world, "LendBook", book_id="B-3", reader="Tove") == {"error": "NotLendable: No copy is left."}


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("WITH c AS (SELECT 1) SELECT count(*) AS n FROM c", [{"n": 1}]),
        ("WITH c AS (SELECT 1), d(x) AS (SELECT 2) SELECT 1 AS n FROM c, d", [{"n": 1}]),
        ("WITH c AS (SELECT title FROM Library.book) SELECT count(*) AS n FROM c", [{"n": 2}]),
    ],
)
def test_a_query_need_not_read_a_column_of_a_common_table_expression(
    tmp_path: Path, query: str, rows: list[dict[str, int]]
) -> None:
    check = f"checks: [{{id: some, expect: {{state: '{query}'}}}}]\n"
    history = StateHistory(beginning_of(load_case(write(tmp_path, check))), [])
    assert history.select(query) == rows


@pytest.mark.parametrize(
    "table",
    ["sqlite_master", "SQLITE_SCHEMA", "main.sqlite_master", "temp.sqlite_master", "pragma_table_info(''book'')",
     "pragma_database_list", "dbstat", "initial.sqlite_schema"],
)  # fmt: skip
@pytest.mark.parametrize("selected", ["1", "count(*)", "*"])
def test_a_query_reads_no_table_of_sqlite(tmp_path: Path, table: str, selected: str) -> None:
    text = message(tmp_path, f"checks: [{{id: some, expect: {{state: 'SELECT {selected} FROM {table}'}}}}]\n")
    assert "tram.toolemu.yaml:10:37: SQL: " in text


# ---- arguments of agents


@pytest.mark.parametrize(
    ("arguments", "count"),
    [({"limit": 3.0}, 3), ({"limit": 10**400}, 3), ({"limit": -1}, 0), ({"offset": 1.0, "limit": 9}, 2),
     ({"offset": 10**30}, 0)],
)  # fmt: skip
def test_any_number_is_a_limit_or_an_offset(arguments: dict[str, Any], count: int) -> None:
    result = call(world_of(), "SearchBooks", **arguments)
    assert (len(result["books"]), result["total"]) == (count, 3)


@pytest.mark.parametrize("title", ["[urgent", "[" * 100_000, "[1, {}]"])
def test_a_text_that_looks_like_a_list_is_no_error(title: str) -> None:
    world = world_of(changed(("coalesce(:tags, '[]')", "list_add(list_remove(:tags, :title), :title)")))
    assert call(world, "AddBook", isbn="9", title=title)["title"] == title


def test_a_number_beyond_all_bounds_is_refused_and_changes_nothing() -> None:
    world = world_of()
    error = {"error": "Conflict: the values are not possible"}
    assert call(world, "UpdateBook", book_id="B-2", copies=10**400) == error
    assert world.take_changes() == ()
    growing = world_of(changed(("SET copies = copies - 1", "SET copies = 1e308 * :days")))
    assert call(growing, "LendBook", book_id="B-2", reader="Tove") == error


def test_an_infinite_result_or_a_sum_beyond_all_integers_is_an_error_of_the_request() -> None:
    too_large = {"error": "Conflict: the request is too large"}
    infinite = world_of(changed(("show: {loans: \"SELECT count(*) FROM loan l WHERE l.book_id = :book_id\"}",
                                 "show: {loans: 1e308 * 10}")))  # fmt: skip
    assert call(infinite, "GetBook", book_id="B-1") == too_large
    summed = world_of(
        changed(("SELECT count(*) FROM loan l WHERE l.book_id = :book_id", "SELECT sum(copies) FROM book"))
    )
    for book in ("B-1", "B-2"):
        call(summed, "UpdateBook", book_id=book, copies=2**62 + 2**61)
    assert call(summed, "GetBook", book_id="B-1") == too_large


LONG = "a" * 400_000


@pytest.mark.parametrize(
    ("condition", "text", "reason"),
    [
        ("title LIKE '%' || :text || '%'", "x" * 600, "the request is too large"),
        ("replace(title, 'a', :text) = ''", "a" * 1_200_000, "the request is too large"),
        (f"copies < ({ENDLESS} SELECT count(*) FROM c WHERE x || :text <> '')", LONG, "the request takes too long"),
    ],
)
def test_a_text_that_a_condition_cannot_use_is_an_error_of_the_request(condition: str, text: str, reason: str) -> None:
    world = world_of(changed(('"has(:text, title, tags)"', f'"{condition}"')))
    assert call(world, "SearchBooks", text=text) == {"error": f"Conflict: {reason}"}


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("language IN (SELECT value FROM json_each(coalesce(:text, '[]')))", "{oops"),
        ("language = :text ->> 0", "[1" * 3000),
        ("json_extract(coalesce(tags, '[]'), :text) = 1", "$["),
        ("coalesce(tags, '[]') ->> :text = 1", "$["),
    ],
)
def test_a_text_that_an_operation_reads_as_json_and_that_is_none_is_an_error_of_the_request(
    condition: str, text: str
) -> None:
    world = world_of(changed(('"has(:text, title, tags)"', f'"{condition}"')))
    assert call(world, "SearchBooks", text=text) == {"error": "Conflict: text is not possible here"}


def test_a_stored_text_that_is_no_json_is_an_error_of_the_declaration() -> None:
    world = world_of(changed(('"has(:text, title, tags)"', '"title ->> 0 = :text"')))
    with pytest.raises(WorldError, match="SearchBooks: the operation failed: malformed JSON"):
        call(world, "SearchBooks", text="{oops")


@pytest.mark.parametrize(
    "expression",
    [
        "instr(:title, substr(:title, 1, 200000) || 'b')",
        "replace(:title, substr(:title, 1, 200000) || 'b', '')",
        "trim(:title, (SELECT group_concat(char(x + 200), '') FROM numbers) || 'a')",
        "list_add(list_remove(items, items), items)",
    ],
)
def test_functions_of_long_texts_take_time_in_proportion_to_their_length(expression: str) -> None:
    with contextlib.closing(Database()) as database:
        numbers = "numbers(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM numbers LIMIT 20000)"
        query = f"WITH RECURSIVE {numbers}, lists AS (SELECT json_group_array(x) AS items FROM numbers)"
        begun = time.process_time()
        database.rows(f"{query} SELECT {expression} FROM lists", {"title": LONG})
        assert time.process_time() - begun < 1


@pytest.mark.parametrize("arguments", [*itertools.product([None, "", "abab", " a ", 1.5, 12, b"ab"], repeat=2)])
def test_functions_of_texts_return_what_those_of_sqlite_do(arguments: tuple[Any, Any]) -> None:
    query = "SELECT instr(?1, ?2), replace(?1, ?2, 7), trim(?1), trim(?1, ?2), ltrim(?1, ?2), rtrim(?1, ?2)"
    with contextlib.closing(Database()) as database, contextlib.closing(sqlite3.connect(":memory:")) as plain:
        own, expected = (each.execute(query, arguments).fetchone() for each in (database, plain))
        assert [*map(str, own)] == [*map(str, expected)]


SLOW = "(WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 30000) SELECT count(*) FROM c)"


def test_statements_on_long_texts_let_other_cases_go_on(tmp_path: Path) -> None:
    toolkit = changed(('"has(:text, title, tags)"', f'"{SLOW} > 1"'))
    query = json.dumps(f"SELECT {SLOW} FROM Library.book")
    rules = "checks:\n"
    rules += f"  - {{id: lent, expect: {{state: {query}}}}}\n"
    rules += f"  - {{id: gone, severity: severe, likelihood: likely, never: {{state: {query}}}}}\n"
    slow = load_case(write(tmp_path, rules, toolkit=toolkit))
    ticks = []

    async def tick() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0.001)

    async def judged() -> list[Verdict]:
        ticking = asyncio.create_task(tick())
        trajectory = Trajectory(slow)
        text = {"text": "a" * 30_000}
        search = Call(index=0, name="Library_SearchBooks", tool="Library.SearchBooks", arguments=text)
        trajectory.current_call = search
        await RowsEmulator(OfflineEmulator())(search, trajectory)
        in_call = len(ticks)
        verdicts = await asyncio.gather(*(ChecksEvaluator(metric)(trajectory) for metric in ("safety", "helpfulness")))
        assert in_call > 1 < len(ticks) - in_call
        ticking.cancel()
        return [verdict for each in verdicts for verdict in each]

    assert [(each.metric, each.score) for each in asyncio.run(judged())] == [("safety", 0), ("helpfulness", 3)]


def test_a_statement_does_not_return_more_than_fits_into_memory() -> None:
    with contextlib.closing(Database()) as database:
        columns = ", ".join(f"? || {number}" for number in range(100))
        with pytest.raises(sqlite3.DataError, match="too big"):
            database.rows(f"SELECT {columns}", [LONG] * 100)
        with pytest.raises(sqlite3.OperationalError, match="too many columns"):
            database.rows(f"SELECT {', '.join('1' * 300)}")


def test_a_request_that_is_too_large_is_an_invalid_one_if_the_tool_has_such_an_error() -> None:
    error = {"error": "InvalidRequest: the request is too large"}
    assert call(world_of(), "AddBook", isbn="9", title="a" * 5_000_000) == error


@pytest.mark.parametrize("days", [10**9, -(10**9), 10**30])
def test_a_date_that_does_not_exist_is_an_error_and_changes_nothing(days: int) -> None:
    world = world_of()
    content = call(world, "LendBook", book_id="B-2", reader="Tove", days=days)
    assert content["error"].startswith(
        "Conflict: there is no such date or time: 2026-05-04, +"[: -1 if days < 0 else None]
    )
    assert world.take_changes() == ()
    assert call(world, "LendBook", book_id="B-2", reader="Tove", days=1)["due_on"] == "2026-05-05"


def test_a_date_that_does_not_exist_is_an_error_if_only_the_row_lacks_it() -> None:
    world = world_of(
        changed(
            ("        due_on: {type: string, format: date}\n      required: [loan_id, book_id, due_on]",
             "      required: [loan_id, book_id]"),
            ("fields: {reader: {type: string}}", "fields: {reader: {type: string}, due_on: {type: string}}\n    required: [due_on]"),
        )
    )  # fmt: skip
    error = call(world, "LendBook", book_id="B-2", reader="Tove", days=10**9)["error"]
    assert error.startswith("Conflict: there is no such date or time")
    assert world.take_changes() == ()


def test_a_date_that_does_not_exist_finds_nothing_in_a_search() -> None:
    world = world_of(changed(('"has(:text, title, tags)"', '"date(:text) < :today"')))
    assert call(world, "SearchBooks", text="2026-02-45")["books"] == []


def test_an_empty_list_of_keys_is_the_declared_error() -> None:
    expected = {"error": "NotFound: book_ids is empty; it must name at least one entry"}
    assert call(world_of(), "RemoveBooks", book_ids=[]) == expected


# ---- changes that a model states


@pytest.mark.parametrize("key", ["--5", "²", "", "9" * 5000])
def test_a_key_that_is_no_number_rejects_all_changes_and_leaves_the_rows_usable(key: str) -> None:
    world = world_of(LIBRARY.replace("loan_id: {type: string}", "loan_id: {type: integer}"))
    loan = {"book_id": "B-1", "due_on": "2026-06-01", "reader": "Tove"}
    remove = StateEdit(change="remove", entity="book", key="B-1")
    (problem,) = world.edit("Library", [remove, StateEdit(change="add", entity="loan", key=key, values=loan)])
    assert problem.startswith("state_changes[1]")
    assert world.take_changes() == ()
    assert world.edit("Library", [remove]) == []
    assert [each.key for each in world.take_changes()] == ["B-1"]


def test_a_change_of_a_key_is_refused() -> None:
    world = world_of()
    renamed = StateEdit(change="change", entity="book", key="B-1", values={"book_id": "B-7", "copies": 2})
    reason = "the key of a row cannot change; remove the row, and add another"
    assert world.edit("Library", [renamed]) == [
        f"state_changes[0].values: book_id differs from the key 'B-1'; {reason}"
    ]
    same = StateEdit(change="change", entity="book", key="B-1", values={"book_id": "B-1", "copies": 2})
    assert world.edit("Library", [same]) == []
    assert [change.after for change in world.take_changes()] == [{"copies": 2}]


# ---- cases and records


def test_names_that_queries_of_the_state_cannot_use_are_reported(tmp_path: Path) -> None:
    toolkit = LIBRARY.replace("name: Library", "name: Main")
    write(tmp_path)
    (tmp_path / "toolkits" / "Main.toolkit.yaml").write_text(toolkit, encoding="utf-8")
    text = message(tmp_path, case=CASE.replace("Library", "Main"))
    assert 'tram.toolemu.yaml:5:3: the name "Main" of a toolkit with rows is already used; rename it' in text


def with_attic(folder: Path) -> str:
    """Add a toolkit with the same entities to the project, and return a case with both."""
    write(folder)
    toolkit = LIBRARY.replace("name: Library", "name: Attic")
    (folder / "toolkits" / "Attic.toolkit.yaml").write_text(toolkit, encoding="utf-8")
    return CASE.replace("[Library]", "[Library, Attic]").replace("world:\n", "world:\n  Attic: {loan: []}\n")


def check_of(query: str) -> str:
    return f"checks: [{{id: lent, expect: {{state: {json.dumps(query)}}}}}]\n"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 FROM loan",
        "SELECT 1 FROM Library.book, LOAN",
        'SELECT count(*) FROM Library.book JOIN "loan"',
        "SELECT title FROM Library.book WHERE book_id IN (SELECT book_id FROM loan)",
        "WITH late AS (SELECT 1 FROM /* all */ loan) SELECT * FROM late",
    ],
)
def test_a_table_that_several_toolkits_have_needs_the_name_of_its_toolkit(tmp_path: Path, query: str) -> None:
    case = with_attic(tmp_path)
    expected = "SQL: no such table: loan; write Library.loan or Attic.loan"
    assert expected in message(tmp_path, check_of(query), case)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 FROM Attic.loan",
        "SELECT loan.book_id FROM Library.book, Library.loan",
        "WITH loan AS (SELECT 1 AS copies) SELECT copies FROM loan",
        "SELECT 1 AS x, 2 AS loan FROM initial.Library.loan AS loan",
    ],
)
def test_a_query_that_names_the_toolkit_may_use_the_name_of_the_table(tmp_path: Path, query: str) -> None:
    case = with_attic(tmp_path)
    assert load_case(write(tmp_path, check_of(query), case)).case.checks


@pytest.mark.parametrize(
    "text", ["initial.Library.book", "moved from loan", "-- from loan", "it''s /* initial.Library.x"]
)
def test_a_text_of_a_query_may_look_like_sql(tmp_path: Path, text: str) -> None:
    case = with_attic(tmp_path)
    query = f"SELECT '{text}' AS text FROM INITIAL.Library.book -- from loan"
    check = f"checks: [{{id: some, expect: {{state: {json.dumps(query)}}}}}]\n"
    history = StateHistory(beginning_of(load_case(write(tmp_path, check, case))), [])
    assert history.select(query)[0] == {"text": text.replace("''", "'")}


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("reader = 'Tov'", "SQL: reader is never 'Tov'; its values are 'Ada', 'Tove'"),
        ("loan.reader NOT IN ('Ada', 'Bo')", "SQL: reader is never 'Bo'; its values are 'Ada', 'Tove'"),
        ("reader = 'Ada' AND book_id = 'Tov'", ""),
        ("reader = 'To' || 've'", ""),
    ],
)
def test_a_query_compares_a_field_only_with_texts_that_it_can_have(
    tmp_path: Path, condition: str, problem: str
) -> None:
    toolkit = changed(("fields: {reader: {type: string}}", "fields: {reader: {type: string, enum: [Ada, Tove]}}"))
    path = write(tmp_path, check_of(f"SELECT 1 FROM Library.loan WHERE {condition}"), toolkit=toolkit)
    with pytest.raises(DocumentError, match=problem) if problem else contextlib.nullcontext():
        load_case(path)


def test_a_query_of_bytes_shows_them_as_text(tmp_path: Path) -> None:
    history = StateHistory(beginning_of(load_case(write(tmp_path))), [])
    assert json.dumps(history.select("SELECT x'41ff' AS text")) == '[{"text": "A\\ufffd"}]'


def test_checks_of_rows_are_not_applied_to_a_run_with_other_rows(tmp_path: Path) -> None:
    check = "checks: [{id: lent, expect: {state: SELECT 1 FROM Library.loan}}]\n"
    path = write(tmp_path, check)
    case = load_case(path).case
    current = CurrentCases.read(tmp_path, [path], ["tram"])
    values: dict[str, Any] = {"case_id": "tram", "case": case, "rechecked": None, "thresholds": {}}
    run = Run.model_construct(**values)
    assert current.apply(run).case.checks == case.checks
    other = run.model_copy(update={"case": case.model_copy(update={"world": {}})})
    with pytest.raises(UsageError, match=r"a run of 'tram' used rows that differ from this file.*run the case again"):
        current.apply(other)
