"""``toolemu lint``, ``stats``, ``schema``, ``dataset``, and ``pin``: work on files without a model."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.columns import Columns
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from pytest_toolemu.authoring.dataset_stats import Stats, Table, markdown_lines
from pytest_toolemu.cli.common import out
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.files.atomic_write import write_json_text
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.formats.yaml_document import read_text

datasets = typer.Typer(no_args_is_help=True, help="Datasets: folders of cases with a name, a version, and targets.")

Paths = Annotated[list[Path] | None, typer.Argument(help="Files or folders; default: the current folder.")]


class Format(StrEnum):
    """The output formats of ``toolemu stats``."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


def lint(paths: Paths = None) -> None:
    """Check toolkit, case, and dataset files, and print each problem with its location. Exit with 1 for an error."""
    from pytest_toolemu.authoring.lint import lint_paths

    result = lint_paths(paths or [Path()])
    for problem in result.problems:
        out.print(visible(str(problem)))
    tools = sum(len(toolkit.tools) for toolkit in result.toolkits.values())
    toolkits, cases = counted(len(result.toolkits), "toolkit"), counted(len(result.cases), "case")
    errors, warnings = (counted(result.count(level), level) for level in ("error", "warning"))
    out.print(f"{toolkits}, {counted(tools, 'tool')}, {cases}; {result.origin}: {errors}, {warnings}")
    if result.count("error") or not result.read:
        raise typer.Exit(1)


def stats(
    paths: Paths = None,
    form: Annotated[Format, typer.Option("--format", help="Output format of the tables.")] = Format.TABLE,
    into: Annotated[
        Path | None, typer.Option(help="Write the tables as Markdown between the markers in this file.")
    ] = None,
) -> None:
    """Print statistics of toolkits, tools, and cases."""
    from pytest_toolemu.authoring.dataset_stats import stats as dataset_stats

    result = dataset_stats(paths or [Path()])
    if into is not None:
        changed = write_into(into, as_markdown(result))
        out.print(f"{into}: {'written' if changed else 'is up to date'}")
    elif form is Format.TABLE:
        print_tables(result, out)
    else:
        text = as_markdown(result) if form is Format.MARKDOWN else as_json(result) + "\n"
        out.print(text, end="")


def schema(folder: Annotated[Path, typer.Argument(help="Folder for the JSON Schemas.")]) -> None:
    """Write the JSON Schemas of all file formats, for editors."""
    from pytest_toolemu.authoring.json_schemas import write_schemas

    for path in write_schemas(folder):
        out.print(str(path))


@datasets.command("stamp")
def dataset_stamp(
    folder: Annotated[Path, typer.Argument(help="Folder with toolemu-dataset.yaml, or a folder below it.")] = Path(),
) -> None:
    """Write the split and canary of toolemu-dataset.yaml into every case and toolkit of the dataset."""
    from pytest_toolemu.authoring.stamp import stamp

    result = stamp(folder)
    share = f"{result.heldout} held out, {result.heldout / max(result.cases, 1):.1%}"
    counts = f"{counted(result.cases, 'case')} ({share}), {counted(result.toolkits, 'toolkit')}"
    name = f"{result.dataset.name} {result.dataset.version}"
    out.print(f"{name}: {counts}; {counted(len(result.written), 'file')} written")


def pin(
    run: Annotated[Path, typer.Argument(help="Record of a run, as shown in the terminal.")],
    to: Annotated[
        Path | None, typer.Option(help="File or folder for a copy of the case; default: the case file itself.")
    ] = None,
) -> None:
    """Add the tool results of a run to its case as pins, so that other agents get the same results."""
    from pytest_toolemu.authoring.pin import pin_run

    result = pin_run(run, to)
    out.print(f"{counted(result.added, 'pin')} added to {result.path}")
    for note in result.notes:
        out.print(visible(f"note: {note}"))


new = typer.Typer(no_args_is_help=True, help="Write a commented toolkit or case to start from.")


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the project; default: the current folder.")] = Path(),
) -> None:
    """Write a small project: toolkit, case, an agent that fails it, gate, and workflow. Existing files are kept."""
    from pytest_toolemu.authoring.starter import write_starter

    project = write_starter(folder)
    for path in project.written:
        out.print(visible(f"written: {path}"))
    for path in project.kept:
        out.print(visible(f"already exists, kept: {path}"))
    if project.configuration is not None:
        out.print(
            visible(f"{project.configuration} already configures pytest; name the agent there: ")
            + "toolemu_agent = my_agent.py:answer"
        )
    where = "" if folder == Path() else visible(f"cd {folder} && ")
    out.print(f"Next: {where}pytest; one case fails, and the output explains why")


@new.command("toolkit")
def toolkit(
    name: Annotated[str, typer.Argument(help="Name of the toolkit, such as BankManager.")],
    into: Annotated[Path, typer.Option(help="Folder of the file.")] = Path("toolkits"),
) -> None:
    """Write a commented toolkit with an entity and two tools; replace each TODO."""
    from pytest_toolemu.authoring.starter import new_toolkit

    _print_written(new_toolkit(name, into))


@new.command("case")
def case(
    case_id: Annotated[str, typer.Argument(metavar="ID", help="ID of the case, which is the name of its file.")],
    *,
    toolkits: Annotated[str, typer.Option(help="Names of its toolkits, separated by commas.")],
    into: Annotated[Path, typer.Option(help="Folder of the file.")] = Path("cases"),
) -> None:
    """Write a commented case for these toolkits; replace each TODO."""
    from pytest_toolemu.authoring.starter import new_case

    names = tuple(name.strip() for name in toolkits.split(",") if name.strip())
    _print_written(new_case(case_id, names, into))


def _print_written(path: Path) -> None:
    out.print(visible(f"written: {path}; replace each 'TODO:', then run: toolemu lint {path}"))


BEGIN: Final = "<!-- toolemu stats -->"
END: Final = "<!-- /toolemu stats -->"


def print_tables(stats: Stats, console: Console) -> None:
    """Print the tables, side by side as far as they fit."""
    console.print(Text(visible(stats.origin), style="bold"))
    console.print(
        Columns([Padding(_grid(table), (1, 0, 0, 0), expand=False) for table in stats.tables], padding=(0, 3))
    )


def _grid(table: Table) -> Group:
    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for index, column in enumerate([*table.columns, *(["share"] if table.total else [])]):
        grid.add_column(column, justify="right" if index else "left", style="" if index else "cyan", overflow="fold")
    for name, *counts in table.rows:
        cells = [name, *map(str, counts), *([table.share(counts[0])] if table.total else [])]
        grid.add_row(*(Text(visible(cell)) for cell in cells))
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
    return visible(f"{name} {count}") + (f" ({more})" if more else "")


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
