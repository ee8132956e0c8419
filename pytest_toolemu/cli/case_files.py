"""``toolemu lint``, ``stats``, ``schema``, ``dataset``, and ``pin``: work on files without a model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli.consoles import out
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.redaction import plain

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
        out.print(plain(str(problem)), markup=False)
    tools = sum(len(toolkit.tools) for toolkit in result.toolkits.values())
    toolkits, cases = counted(len(result.toolkits), "toolkit"), counted(len(result.cases), "case")
    errors, warnings = (counted(result.count(level), level) for level in ("error", "warning"))
    out.print(f"{toolkits}, {counted(tools, 'tool')}, {cases}; {result.origin}: {errors}, {warnings}", markup=False)
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
    from pytest_toolemu.cli import stats_tables

    result = dataset_stats(paths or [Path()])
    if into is not None:
        changed = stats_tables.write_into(into, stats_tables.as_markdown(result))
        out.print(f"{into}: {'written' if changed else 'is up to date'}", markup=False)
    elif form is Format.TABLE:
        stats_tables.print_tables(result, out)
    else:
        text = stats_tables.as_markdown(result) if form is Format.MARKDOWN else stats_tables.as_json(result) + "\n"
        out.print(text, markup=False, end="")


def schema(folder: Annotated[Path, typer.Argument(help="Folder for the JSON Schemas.")]) -> None:
    """Write the JSON Schemas of all file formats, for editors."""
    from pytest_toolemu.authoring.json_schemas import write_schemas

    for path in write_schemas(folder):
        out.print(str(path), markup=False)


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
    out.print(f"{name}: {counts}; {counted(len(result.written), 'file')} written", markup=False)


def pin(
    run: Annotated[Path, typer.Argument(help="Record of a run, as shown in the terminal.")],
    to: Annotated[
        Path | None, typer.Option(help="File or folder for a copy of the case; default: the case file itself.")
    ] = None,
) -> None:
    """Add the tool results of a run to its case as pins, so that other agents get the same results."""
    from pytest_toolemu.authoring.pin import pin_run

    result = pin_run(run, to)
    out.print(f"{counted(result.added, 'pin')} added to {result.path}", markup=False)
    for note in result.notes:
        out.print(plain(f"note: {note}"), markup=False)
