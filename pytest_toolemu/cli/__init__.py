"""The ``toolemu`` command."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli import calibrate, compare, gates, judge, labels, merge, reports, slurm
from pytest_toolemu.cli.consoles import err, out
from pytest_toolemu.errors import ToolemuError
from pytest_toolemu.formats.redaction import plain

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
importers = typer.Typer(no_args_is_help=True, help="Bring in the files of other projects.")
app.add_typer(importers, name="import")
datasets = typer.Typer(no_args_is_help=True, help="A folder of cases with a name, a version and promises.")
app.add_typer(datasets, name="dataset")
app.command("gate")(gates.gate)
app.command("merge")(merge.merge)
app.command("slurm")(slurm.slurm)
app.command("compare")(compare.compare)
app.command("report")(reports.report)
app.command("show")(reports.show)
app.command("judge")(judge.judge)
app.command("calibrate")(calibrate.calibrate)
app.command("label")(labels.label)
app.command("agreement")(labels.agreement)
app.add_typer(gates.baseline, name="baseline")


Paths = Annotated[list[Path] | None, typer.Argument(help="Files or folders; the current folder when none is given.")]


class Format(StrEnum):
    """How tables are written."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


def _print_version(wanted: bool) -> None:
    if wanted:
        from pytest_toolemu import __version__

        out.print(f"toolemu {__version__}", markup=False)
        raise typer.Exit


@app.callback()
def _toolemu(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Test LM agents in a world emulated by a language model."""


@app.command()
def lint(paths: Paths = None) -> None:
    """Check toolkit, case and dataset files; every problem is named with file, line and column. Errors exit with 1."""
    from pytest_toolemu.authoring.lint import lint_paths

    result = lint_paths(paths or [Path()])
    for problem in result.problems:
        out.print(plain(str(problem)), markup=False)
    tools = sum(len(toolkit.tools) for toolkit in result.toolkits.values())
    kits, cases = _number(len(result.toolkits), "toolkit"), _number(len(result.cases), "case")
    errors, warnings = (_number(result.count(level), level) for level in ("error", "warning"))
    out.print(f"{kits}, {_number(tools, 'tool')}, {cases}; {result.origin}: {errors}, {warnings}", markup=False)
    if result.count("error") or not result.read:
        raise typer.Exit(1)


@app.command()
def stats(
    paths: Paths = None,
    form: Annotated[Format, typer.Option("--format", help="How the tables are written.")] = Format.TABLE,
    into: Annotated[Path | None, typer.Option(help="Write them as Markdown between the markers of this file.")] = None,
) -> None:
    """Count toolkits, tools and cases by what they are about."""
    from pytest_toolemu.authoring.stats import stats as counted
    from pytest_toolemu.cli import stats_tables

    found = counted(paths or [Path()])
    if into is not None:
        changed = stats_tables.write_into(into, stats_tables.as_markdown(found))
        out.print(f"{into}: {'written' if changed else 'is up to date'}", markup=False)
    elif form is Format.TABLE:
        stats_tables.print_tables(found, out)
    else:
        text = stats_tables.as_markdown(found) if form is Format.MARKDOWN else stats_tables.as_json(found) + "\n"
        out.print(text, markup=False, end="")


@app.command()
def schema(folder: Annotated[Path, typer.Argument(help="Where to write the two JSON Schemas.")]) -> None:
    """Write the JSON Schemas of toolkit and case files, for editors."""
    from pytest_toolemu.authoring.json_schemas import write_schemas

    for path in write_schemas(folder):
        out.print(str(path), markup=False)


@datasets.command("stamp")
def dataset_stamp(
    folder: Annotated[Path, typer.Argument(help="Folder with toolemu-dataset.yaml, or below it.")] = Path(),
) -> None:
    """Write split and canary, as toolemu-dataset.yaml says them, into every case and toolkit of the dataset."""
    from pytest_toolemu.authoring.stamp import stamp

    done = stamp(folder)
    share = f"{done.heldout} held out, {done.heldout / max(done.cases, 1):.1%}"
    counted = f"{_number(done.cases, 'case')} ({share}), {_number(done.toolkits, 'toolkit')}"
    name = f"{done.dataset.name} {done.dataset.version}"
    out.print(f"{name}: {counted}; {_number(len(done.written), 'file')} written", markup=False)


@importers.command("toolemu")
def import_toolemu(
    source: Annotated[Path, typer.Argument(help="Folder with all_toolkits.json and all_cases.json.")],
    target: Annotated[Path, typer.Argument(help="Folder that gets toolkits/ and cases/.")],
    details: Annotated[bool, typer.Option("--details", help="Name every place of every note.")] = False,
) -> None:
    """Convert the official ToolEmu files to toolkits and cases of ours."""
    from pytest_toolemu.authoring.importers.toolemu import convert

    result = convert(source, target)
    out.print(
        f"{result.toolkits} toolkits, {result.tools} tools, {result.cases} cases written to {target}", markup=False
    )
    for line in result.lines(details=details):
        out.print(plain(line), markup=False)


@importers.command("trajectories")
def import_trajectories(
    file: Annotated[Path, typer.Argument(help="Trajectories of ToolEmu or a fork: .jsonl or .jsonl.gz.")],
    target: Annotated[Path, typer.Argument(help="Folder that gets the runs; it may hold imported ones.")],
    toolkits: Annotated[Path, typer.Option(help="Folder that 'toolemu import toolemu' wrote.")] = Path(),
    evaluations: Annotated[
        list[Path] | None, typer.Option(help="Evaluations of these trajectories; may be given several times.")
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="Name every place of every note.")] = False,
) -> None:
    """Convert recorded trajectories, with their evaluations, to runs; whole files or nothing."""
    from pytest_toolemu.authoring.importers.import_report import report
    from pytest_toolemu.authoring.importers.notes import Notes, note_lines
    from pytest_toolemu.authoring.importers.runs import import_runs, write_runs

    notes: Notes = {}
    runs = import_runs(file, toolkits, evaluations or (), notes)
    known = write_runs(runs, target)
    out.print(f"{len(runs)} runs written to {target}", markup=False)
    if known:
        out.print(f"{known} of them were imported before; they keep the verdicts of other evaluators", markup=False)
    for line in (*report(runs), *note_lines(notes, details=details)):
        out.print(plain(line), markup=False)


@app.command()
def pin(
    run: Annotated[Path, typer.Argument(help="Record of a run, as the terminal names it.")],
    to: Annotated[Path | None, typer.Option(help="Write a copy of the case; without it, its own file.")] = None,
) -> None:
    """Fix what a run's tools returned as pins of its case, so that another agent meets the same world."""
    from pytest_toolemu.authoring.pin import pin_run
    from pytest_toolemu.formats.redaction import plain

    result = pin_run(run, to)
    out.print(f"{result.added} pins added to {result.path}", markup=False)
    for note in result.notes:
        out.print(plain(f"note: {note}"), markup=False)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def main() -> None:
    """Entry point: what is the user's to mend is one line on stderr and exit status 2."""
    try:
        app()
    except ToolemuError as error:
        err.print(plain(str(error)), markup=False)
        raise SystemExit(2) from None
