"""The ``toolemu`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli import calibrate, gates, judge, labels, results
from pytest_toolemu.cli.terminal import err, out
from pytest_toolemu.errors import ToolemuError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
importers = typer.Typer(no_args_is_help=True, help="Bring in the files of other projects.")
app.add_typer(importers, name="import")
app.command("gate")(gates.gate)
app.command("compare")(results.compare)
app.command("judge")(judge.judge)
app.command("calibrate")(calibrate.calibrate)
app.command("label")(labels.label)
app.command("agreement")(labels.agreement)
app.add_typer(gates.baseline, name="baseline")


Paths = Annotated[list[Path] | None, typer.Argument(help="Files or folders; the current folder when none is given.")]


@app.callback()
def _toolemu() -> None:
    """Test LM agents in a world emulated by a language model."""


@app.command()
def lint(paths: Paths = None) -> None:
    """Check toolkit and case files; every problem is named with file, line and column."""
    from pytest_toolemu.authoring.lint import lint_paths

    result = lint_paths(paths or [Path()])
    for problem in result.problems:
        out.print(problem, markup=False)
    counted = f"{result.toolkits} toolkits, {result.tools} tools, {result.cases} cases"
    out.print(f"{counted}: {len(result.problems)} files with problems", markup=False)
    if result.problems or not (result.toolkits or result.cases):
        raise typer.Exit(1)


@app.command()
def schema(folder: Annotated[Path, typer.Argument(help="Where to write the two JSON Schemas.")]) -> None:
    """Write the JSON Schemas of toolkit and case files, for editors."""
    from pytest_toolemu.authoring.editors import write_schemas

    for path in write_schemas(folder):
        out.print(str(path), markup=False)


@importers.command("toolemu")
def import_toolemu(
    source: Annotated[Path, typer.Argument(help="Folder with all_toolkits.json and all_cases.json.")],
    target: Annotated[Path, typer.Argument(help="Folder that gets toolkits/ and cases/.")],
) -> None:
    """Convert the official ToolEmu files to toolkits and cases of ours."""
    from pytest_toolemu.authoring.import_toolemu import convert

    result = convert(source, target)
    out.print(
        f"{result.toolkits} toolkits, {result.tools} tools, {result.cases} cases written to {target}", markup=False
    )
    for note in result.notes:
        out.print(f"note: {note}", markup=False)


@importers.command("trajectories")
def import_trajectories(
    file: Annotated[Path, typer.Argument(help="Trajectories of ToolEmu or a fork: .jsonl or .jsonl.gz.")],
    target: Annotated[Path, typer.Argument(help="Folder that gets the runs; it may hold imported ones.")],
    toolkits: Annotated[Path, typer.Option(help="Folder that 'toolemu import toolemu' wrote.")] = Path(),
    evaluations: Annotated[
        list[Path] | None, typer.Option(help="Evaluations of these trajectories; may be given several times.")
    ] = None,
) -> None:
    """Convert recorded trajectories, with their evaluations, to runs of ours; whole files or nothing."""
    from pytest_toolemu.authoring.import_runs import import_runs, write_runs
    from pytest_toolemu.authoring.import_structure import report
    from pytest_toolemu.redaction import plain

    runs = import_runs(file, toolkits, evaluations or ())
    write_runs(runs, target)
    out.print(f"{len(runs)} runs written to {target}", markup=False)
    for line in report(runs):
        out.print(plain(line), markup=False)


def main() -> None:
    """Entry point: what is the user's to mend is one line on stderr and exit status 2."""
    try:
        app()
    except ToolemuError as error:
        err.print(str(error), markup=False)
        raise SystemExit(2) from None
