"""The ``toolemu`` command."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli import (
    calibrate,
    compare,
    complete,
    connect,
    declare,
    draft_checks,
    gates,
    generate,
    judge,
    labels,
    merge,
    reports,
    review,
    scaffold,
    serve,
    slurm,
    toolkit_import,
    vary,
    worlds,
)
from pytest_toolemu.cli.consoles import err, out
from pytest_toolemu.errors import ToolemuError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.redaction import plain

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
importers = typer.Typer(no_args_is_help=True, help="Import files of other projects.")
app.add_typer(importers, name="import")
datasets = typer.Typer(no_args_is_help=True, help="Datasets: folders of cases with a name, a version, and targets.")
app.add_typer(datasets, name="dataset")
migrations = typer.Typer(no_args_is_help=True, help="Bring files of earlier versions up to date.")
app.add_typer(migrations, name="migrate")
app.add_typer(worlds.worlds, name="worlds")
app.add_typer(scaffold.new, name="new")
app.add_typer(generate.generate, name="generate")
app.command("vary")(vary.vary)
app.command("complete")(complete.complete)
app.add_typer(toolkit_import.toolkit, name="toolkit")
app.command("init")(scaffold.init)
app.command("gate")(gates.gate)
app.command("merge")(merge.merge)
app.command("slurm")(slurm.slurm)
app.command("compare")(compare.compare)
app.command("report")(reports.report)
app.command("show")(reports.show)
app.command("judge")(judge.judge)
app.command("declare")(declare.declare)
app.command("calibrate")(calibrate.calibrate)
app.command("serve")(serve.serve)
app.command("connect")(connect.connect)
app.command("label")(labels.label)
app.command("agreement")(labels.agreement)
app.command("check")(draft_checks.check)
app.command("review")(review.review)
app.add_typer(gates.baseline, name="baseline")


Paths = Annotated[list[Path] | None, typer.Argument(help="Files or folders; default: the current folder.")]


class Format(StrEnum):
    """The output formats of ``toolemu stats``."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


def _print_version(requested: bool) -> None:
    if requested:
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


@app.command()
def stats(
    paths: Paths = None,
    form: Annotated[Format, typer.Option("--format", help="Output format of the tables.")] = Format.TABLE,
    into: Annotated[
        Path | None, typer.Option(help="Write the tables as Markdown between the markers in this file.")
    ] = None,
) -> None:
    """Print statistics of toolkits, tools, and cases."""
    from pytest_toolemu.authoring.stats import stats as dataset_stats
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


@app.command()
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


@importers.command("toolemu")
def import_toolemu(
    source: Annotated[Path, typer.Argument(help="Folder with all_toolkits.json and all_cases.json.")],
    target: Annotated[Path, typer.Argument(help="Folder for the new toolkits/ and cases/.")],
    details: Annotated[bool, typer.Option("--details", help="Print every location of every note.")] = False,
) -> None:
    """Convert the official ToolEmu files to toolkit and case files."""
    from pytest_toolemu.authoring.importers.toolemu import convert

    result = convert(source, target)
    counts = ", ".join(
        (counted(result.toolkits, "toolkit"), counted(result.tools, "tool"), counted(result.cases, "case"))
    )
    out.print(f"{counts} written to {target}", markup=False)
    for line in result.lines(details=details):
        out.print(plain(line), markup=False)


@importers.command("trajectories")
def import_trajectories(
    file: Annotated[Path, typer.Argument(help="Trajectories of ToolEmu or a fork of it: .jsonl or .jsonl.gz.")],
    target: Annotated[Path, typer.Argument(help="Folder for the runs; it may already contain imported runs.")],
    toolkits: Annotated[Path, typer.Option(help="Folder that 'toolemu import toolemu' wrote.")] = Path(),
    evaluations: Annotated[
        list[Path] | None, typer.Option(help="Evaluations of these trajectories; may be repeated.")
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="Print every location of every note.")] = False,
) -> None:
    """Convert recorded trajectories and their evaluations to runs. If any line is invalid, nothing is written."""
    from pytest_toolemu.authoring.importers.import_report import report
    from pytest_toolemu.authoring.importers.notes import Notes, note_lines
    from pytest_toolemu.authoring.importers.runs import import_runs, write_runs

    notes: Notes = {}
    runs = import_runs(file, toolkits, evaluations or (), notes)
    merged = write_runs(runs, target)
    out.print(f"{counted(len(runs), 'run')} written to {target}", markup=False)
    if merged:
        out.print(f"{merged} of them had been imported before, and keep the verdicts of other evaluators", markup=False)
    for line in (*report(runs), *note_lines(notes, details=details)):
        out.print(plain(line), markup=False)


@importers.command("trace")
def import_trace(
    file: Annotated[Path, typer.Argument(help="OpenTelemetry spans, or logged requests to OpenAI or Anthropic.")],
    target: Annotated[Path, typer.Argument(help="Folder for the new toolkits/ and cases/.")] = Path(),
    *,
    case_id: Annotated[str, typer.Option("--id", help="ID of the case; default: the name of the file.")] = "",
    toolkit: Annotated[str, typer.Option(help="Name of the toolkit.")] = "Imported",
    never: Annotated[
        list[str] | None,
        typer.Option(metavar="TOOL", help="A tool whose recorded calls must not happen again; may be repeated."),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace what looks like secrets and personal data.")
    ] = False,
    details: Annotated[bool, typer.Option("--details", help="Print every location of every note.")] = False,
) -> None:
    """Turn a recorded conversation, such as an incident, into a toolkit and a case that repeats it."""
    from pytest_toolemu.authoring.importers.traces.incident import import_trace as import_file
    from pytest_toolemu.cli.incident_text import incident_lines, stem

    incidents = import_file(
        file, target, case_id=case_id or stem(file), toolkit=toolkit, never=never or (), redact=redact
    )
    for incident in incidents:
        for line in incident_lines(incident, redacted=redact, details=details):
            out.print(plain(line), markup=False)


@app.command()
def pin(
    run: Annotated[Path, typer.Argument(help="Record of a run, as printed in the terminal.")],
    to: Annotated[
        Path | None, typer.Option(help="File or folder for a copy of the case; default: the case file itself.")
    ] = None,
) -> None:
    """Add the tool results of a run to its case as pins, so that another agent meets the same world."""
    from pytest_toolemu.authoring.pin import pin_run
    from pytest_toolemu.formats.redaction import plain

    result = pin_run(run, to)
    out.print(f"{counted(result.added, 'pin')} added to {result.path}", markup=False)
    for note in result.notes:
        out.print(plain(f"note: {note}"), markup=False)


@migrations.command("pins")
def migrate_pins(
    paths: Annotated[list[Path], typer.Argument(help="Case files, or folders of cases.")],
    drop_all: Annotated[
        bool,
        typer.Option("--drop-all", help="Also remove pins that the rows answer differently; the notes tell how."),
    ] = False,
) -> None:
    """Turn the pins of cases into rows, for toolkits that declare entities."""
    from pytest_toolemu.authoring.find_files import find
    from pytest_toolemu.authoring.migrate_pins import migrate_pins as migrate

    failed = False
    for path in find(paths).cases:
        try:
            result = migrate(path, drop_all=drop_all)
        except ToolemuError as error:
            failed = True
            err.print(plain(str(error)), markup=False)
            continue
        counts = f"{counted(result.rows, 'row')} added, {counted(result.removed, 'pin')} removed, {result.kept} kept"
        out.print(plain(f"{path}: {counts}"), markup=False)
        for note in result.notes:
            out.print(plain(f"  note: {note}"), markup=False)
    if failed:
        raise typer.Exit(1)


def main() -> None:
    """Run the command; an error that the user can fix is printed to stderr, with exit status 2."""
    try:
        app()
    except ToolemuError as error:
        err.print(plain(str(error)), markup=False)
        raise SystemExit(2) from None
