"""``toolemu import``: turn recordings and files of other projects into toolkits, cases, and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli.common import out
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.visible_text import visible

importers = typer.Typer(no_args_is_help=True, help="Turn tools, recordings, and files of other projects into cases.")


@importers.command("toolemu")
def import_toolemu(
    source: Annotated[Path, typer.Argument(help="Folder with all_toolkits.json and all_cases.json.")],
    target: Annotated[Path, typer.Argument(help="Folder for the new toolkits/ and cases/.")],
    details: Annotated[bool, typer.Option("--details", help="Print every location of every note.")] = False,
) -> None:
    """Convert ToolEmu's official files to toolkit and case files."""
    from pytest_toolemu.authoring.importers.toolemu import convert

    result = convert(source, target)
    counts = ", ".join(
        (counted(result.toolkits, "toolkit"), counted(result.tools, "tool"), counted(result.cases, "case"))
    )
    out.print(f"{counts} written to {target}")
    for line in result.lines(details=details):
        out.print(visible(line))


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
    out.print(f"{counted(len(runs), 'run')} written to {target}")
    if merged:
        out.print(f"{merged} of them had already been imported, and keep the verdicts of other evaluators")
    for line in (*report(runs), *note_lines(notes, details=details)):
        out.print(visible(line))


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
    from pytest_toolemu.cli.importing.incident_text import incident_lines, stem

    incidents = import_file(
        file, target, case_id=case_id or stem(file), toolkit=toolkit, never=never or (), redact=redact
    )
    for incident in incidents:
        for line in incident_lines(incident, redacted=redact, details=details):
            out.print(visible(line))
