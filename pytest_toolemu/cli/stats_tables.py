"""The tables of ``toolemu stats`` for the terminal, as Markdown, and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from rich.columns import Columns
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from pytest_toolemu.authoring.dataset_stats import Stats, Table
from pytest_toolemu.authoring.second_opinion_summary import markdown_lines
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.formats.yaml_document import read_text

BEGIN: Final = "<!-- toolemu stats -->"
END: Final = "<!-- /toolemu stats -->"


def print_tables(stats: Stats, console: Console) -> None:
    """Print the tables, side by side as far as they fit."""
    console.print(Text(plain(stats.origin), style="bold"))
    console.print(
        Columns([Padding(_grid(table), (1, 0, 0, 0), expand=False) for table in stats.tables], padding=(0, 3))
    )


def _grid(table: Table) -> Group:
    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for index, column in enumerate([*table.columns, *(["share"] if table.total else [])]):
        grid.add_column(column, justify="right" if index else "left", style="" if index else "cyan", overflow="fold")
    for name, *counts in table.rows:
        cells = [name, *map(str, counts), *([table.share(counts[0])] if table.total else [])]
        grid.add_row(*(Text(plain(cell)) for cell in cells))
    return Group(Text(table.title, style="bold"), grid)


def as_markdown(stats: Stats) -> str:
    """Return a Markdown table with one row for each distribution, and tables of second opinions if there are any.

    It omits the hashes of datasets, because they change with every file and would soon be out of date in a document.
    """
    names = ", ".join(f"{edition.name} {edition.version}" for edition in stats.editions) or "no dataset"
    rows = [f"| {_heading(table)} | {' · '.join(_cell(table, *row) for row in table.rows)} |" for table in stats.tables]
    opinions = list(markdown_lines(stats.opinions))
    return "\n".join([f"| {names} | |", "|---|---|", *rows, *([""] if opinions else []), *opinions]) + "\n"


def _heading(table: Table) -> str:
    _, first, *others = table.columns
    return f"{table.title}: {first} ({', '.join(others)})" if others else table.title


def _cell(table: Table, name: str, count: int, *others: int) -> str:
    more = ", ".join(map(str, others)) or table.share(count)
    return plain(f"{name} {count}") + (f" ({more})" if more else "")


def as_json(stats: Stats) -> str:
    """Return all tables as JSON by title, row name, and column."""
    tables = {
        table.title: {name: dict(zip(table.columns[1:], counts, strict=True)) for name, *counts in table.rows}
        for table in stats.tables
    }
    editions = [edition.model_dump() for edition in stats.editions]
    return json.dumps({"datasets": editions, "cases of no dataset": stats.outside, **tables}, indent=2)


def write_into(path: Path, text: str) -> bool:
    """Write text between the two markers of a file, and return whether it changed; UsageError without markers."""
    document = read_text(path)
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise UsageError(
            f"{path} has no markers for the tables; add the lines {BEGIN} and {END} where the tables belong"
        )
    changed = f"{before}{begin}\n{text}{end}{after}"
    if changed != document:
        write_json_text(path, changed)
    return changed != document
