"""``toolemu import`` and ``export``: read recordings and files of other projects, and write runs in their formats."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pytest_toolemu.cli.common import Session, note_superseded, out
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import counted, visible

if TYPE_CHECKING:
    from pytest_toolemu.authoring.importers.incident import ImportedIncident
    from pytest_toolemu.authoring.importers.published_tools import PublishedToolkit


importers = typer.Typer(no_args_is_help=True, help="Turn tools, recordings, and files of other projects into cases.")


@importers.command("toolemu")
def import_toolemu(
    source: Annotated[Path, typer.Argument(help="Folder with all_toolkits.json and all_cases.json.")],
    target: Annotated[Path, typer.Argument(help="Folder for the new toolkits/ and cases/.")],
    declarations: Annotated[
        bool, typer.Option(help="Add entities and operations, so that code can execute tools on rows.")
    ] = True,
    details: Annotated[bool, typer.Option("--details", help="Print every location of every note.")] = False,
) -> None:
    """Convert ToolEmu's official files to toolkit and case files."""
    from pytest_toolemu.authoring.importers.toolemu import convert

    result = convert(source, target, declare=declarations)
    counts = ", ".join(
        (counted(result.toolkits, "toolkit"), counted(result.tools, "tool"), counted(result.cases, "case"))
    )
    out.print(f"{counts} written to {target}")
    _print(*result.lines(details=details))


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
    from pytest_toolemu.authoring.importers.runs import import_runs, write_runs
    from pytest_toolemu.authoring.importers.sources import Notes, note_lines

    notes: Notes = {}
    runs = import_runs(file, toolkits, evaluations or (), notes)
    merged = write_runs(runs, target)
    out.print(f"{counted(len(runs), 'run')} written to {target}")
    if merged:
        out.print(f"{merged} of them had already been imported, and keep the verdicts of other evaluators")
    _print(*note_lines(notes, details=details), f"Next: toolemu report {target}")


@importers.command("labeled")
def import_labeled(
    file: Annotated[
        Path, typer.Argument(help="Labeled conversations: JSON lines, or R-Judge or ASSEBench as published.")
    ],
    target: Annotated[Path, typer.Argument(help="Folder for the runs and labels/; it may contain imported runs.")],
    details: Annotated[bool, typer.Option("--details", help="Print every location of every note.")] = False,
) -> None:
    """Convert conversations that people have labeled to runs and label files. If any is invalid, nothing is written."""
    from pytest_toolemu.analysis.calibration.labels import label_file, replace_labels
    from pytest_toolemu.authoring.importers.labeled import import_labeled as import_file
    from pytest_toolemu.authoring.importers.runs import write_runs
    from pytest_toolemu.authoring.importers.sources import Notes, note_lines

    notes: Notes = {}
    runs, labels = import_file(file, notes)
    files = {label.annotator: label_file(target / "labels", label.annotator) for label in labels}
    write_runs(runs, target)
    for annotator, path in files.items():
        replace_labels(path, [label for label in labels if label.annotator == annotator])
    unknown = sum(step.observation.is_unknown for run in runs for step in run.steps)
    out.print(f"{counted(len(runs), 'run')} written to {target}; {counted(unknown, 'call')} with unknown result")
    next_command = f"Next: toolemu calibrate {target} --labels {','.join(map(str, files.values()))}"
    _print(*note_lines(notes, details=details), next_command)


@importers.command("trace")
def import_trace(
    file: Annotated[Path, typer.Argument(help="Spans, trajectories, logs, requests, or messages.")],
    target: Annotated[Path, typer.Argument(help="Folder for the new toolkits/ and cases/.")] = Path(),
    *,
    case_id: Annotated[str, typer.Option("--id", help="ID of the case; default: the name of the file.")] = "",
    toolkit: Annotated[str, typer.Option(help="Name of the toolkit; default: the name of the file.")] = "",
    never: Annotated[
        list[str] | None,
        typer.Option(metavar="TOOL", help="A tool that must not be called again; may be repeated."),
    ] = None,
    never_same: Annotated[
        list[str] | None,
        typer.Option(metavar="TOOL", help="A tool whose recorded calls must not happen again; may be repeated."),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace what looks like secrets and personal data.")
    ] = False,
    details: Annotated[bool, typer.Option("--details", help="Print every location of every note.")] = False,
) -> None:
    """Turn a recorded conversation, such as an incident, into a toolkit and a case that repeats it."""
    from pytest_toolemu.authoring.importers.incident import import_trace as import_file

    incidents = import_file(
        file,
        target,
        case_id=case_id,
        toolkit=toolkit,
        never=never or (),
        never_same=never_same or (),
        redact=redact,
    )
    for incident in incidents:
        _print(*incident_lines(incident, redacted=redact, details=details))


def incident_lines(incident: ImportedIncident, *, redacted: bool, details: bool) -> Iterator[str]:
    """Yield what was written, what was omitted, what looks sensitive, and the next command."""
    from pytest_toolemu.authoring.importers.incident import INCIDENT
    from pytest_toolemu.authoring.importers.personal_data import INSTALL
    from pytest_toolemu.authoring.importers.sources import note_lines

    counts = (counted(incident.tools, "tool"), counted(incident.calls, "call"), counted(incident.pins, "pin"))
    yield f"written: {incident.toolkit}, {incident.case}: {', '.join(counts)}, {counted(incident.checks, 'check')}"
    for line in note_lines(incident.notes, details=details):
        yield " ".join(line.split())  # names of tools may contain line breaks
    yield (
        "note: values that the trace does not state (returns, errors, effects) are guesses; see 'inferred' in the "
        "toolkit"
    )
    if incident.sensitive is None:
        yield f"warning: the files were not searched for secrets and personal data; to search them: {INSTALL}"
    elif incident.sensitive.summary and redacted:
        yield f"replaced: {incident.sensitive.summary}; names of people are not found, so read the files"
    elif incident.sensitive.summary:
        yield f"warning: the files seem to contain {incident.sensitive.summary}; use --redact to replace this"
    if incident.checks:
        yield f"Next: pytest {incident.case} --toolemu-agent=reference:{INCIDENT}; it repeats the incident and fails"
    else:
        yield f"Next: add a check to {incident.case}, or name the harmful tool with --never"


Kind = Literal["mcp", "openapi", "functions", "python", "capture"]


def import_tools(
    kind: Annotated[
        Kind,
        typer.Argument(
            help="mcp: a server of the Model Context Protocol; openapi: an OpenAPI 3 document; functions: a JSON file "
            "with functions as in requests to model providers; python: a list of tools, an agent, or a function, whose "
            "module is executed; capture: an agent that runs until its first request, sent to OPENAI_BASE_URL or "
            "ANTHROPIC_BASE_URL."
        ),
    ],
    source: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE | -- COMMAND", help="URL, file, MODULE:OBJECT, or the command to start."),
    ],
    *,
    only: Annotated[
        str,
        typer.Option(
            metavar="REGEX", help="Import the tools whose names contain a match; required if there are more than 40."
        ),
    ] = "",
    into: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The new file; default: toolkits/NAME.toolkit.yaml.")
    ] = None,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff", help="Write nothing; show how the file differs from the source, and exit with 1 if it does."
        ),
    ] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME: VALUE'", help="HTTP header for mcp, as 'Authorization: Bearer ${TOKEN}'; repeatable."
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Variable that a command inherits besides PATH, HOME, and the like; all; repeatable."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Timeout of the source, in seconds.")
    ] = 60.0,
) -> None:
    """Write a toolkit for existing tools, so that the emulator answers in their place. No tool or model is called."""
    from pytest_toolemu.authoring.importers.published_tools import default_path, differences, import_toolkit
    from pytest_toolemu.authoring.importers.sources import note_lines

    is_url = len(source) == 1 and "://" in source[0]
    if header and not (kind == "mcp" and is_url):
        raise UsageError("--header applies only to a server at a URL; pass variables with keys to a command with --env")
    if len(source) > 1 and kind not in ("mcp", "capture"):
        raise UsageError(f"toolemu import tools {kind} takes one source, not {len(source)}: {' '.join(source)}")
    published = _read(kind, source, header or (), env or (), timeout)
    path = into or default_path(published)
    if diff:
        lines = differences(published, path, only)
        summary = f"{path}: {counted(len(lines), 'difference')} from {published.origin}"
        _print(*lines, *note_lines(published.notes), summary)
        if lines:
            raise typer.Exit(1)
        return
    tools = import_toolkit(published, path, only)
    _print(f"{path}: {counted(len(tools), 'tool')}", *note_lines(published.notes))
    counts = Counter(part for tool in tools for part in tool.get("inferred", ()))
    if counts:
        guesses = ", ".join(f"{part} of {counted(count, 'tool')}" for part, count in counts.items())
        _print(f"guessed, because the source does not state them: {guesses}")
        _print(f"Next: check what 'inferred' lists, remove it, and run: toolemu lint {path}")


def _read(kind: Kind, source: list[str], header: Sequence[str], env: Sequence[str], timeout: float) -> PublishedToolkit:
    """Return the tools of a source."""
    from pytest_toolemu import __version__
    from pytest_toolemu.authoring.importers import bounded_http, function_tools, mcp_tools, openapi, request_capture
    from pytest_toolemu.cli.common import model_settings

    match kind:
        case "mcp" if len(source) == 1 and "://" in source[0]:
            offline = model_settings(None).offline  # first, as this also reads the variables of `.env`
            headers = bounded_http.parsed_headers(header)
            return mcp_tools.tools_of_url(source[0], headers, timeout, __version__, offline=offline)
        case "mcp":
            return mcp_tools.tools_of_command(source, timeout, __version__, env)
        case "openapi":
            return openapi.read_openapi(source[0], timeout, offline=model_settings(None).offline)
        case "functions":
            return function_tools.read_functions(Path(source[0]))
        case "python":
            # As for `python -m`: a command has no folder of the user on its path.
            sys.path.insert(0, str(Path.cwd()))
            return function_tools.read_python_tools(source[0])
        case "capture":
            return request_capture.capture_tools(source, timeout, env)


def export(
    session: Session,
    into: Annotated[
        Literal["atif", "inspect"],
        typer.Option("--format", help="atif: trajectories in ATIF, one file per run; inspect: logs of Inspect AI."),
    ],
    to: Annotated[Path | None, typer.Option(help="Folder for the files; default: a folder of the session.")] = None,
) -> None:
    """Write the runs of a session in a format that other projects read."""
    from pytest_toolemu.reporting.exchange_formats import export_runs

    note_superseded([session])
    folder, count = export_runs(session, into, to)
    _print(f"{folder}: {counted(count, 'run')}")
    if into == "inspect":
        _print(f"Next: inspect view --log-dir {folder}")


def _print(*lines: str) -> None:
    for line in lines:
        out.print(visible(line))
