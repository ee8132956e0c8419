"""``toolemu report`` and ``toolemu show``: reports on stored runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pytest_toolemu.cli.consoles import err, out
from pytest_toolemu.cli.gates import CalibrationFiles
from pytest_toolemu.cli.session_folders import Sessions, note_superseded, session_folder
from pytest_toolemu.formats.counted import counted

if TYPE_CHECKING:
    from pytest_toolemu.sessions.manifest_records import Manifest

_BATCH: Final = 1000
"""Lines of a transcript that are printed together."""


def report(
    results: Sessions,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="html (default), md, json, csv; may be repeated.")
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Folder for the reports; default: the first session.")] = None,
    gates: Annotated[
        list[str] | None, typer.Option("--gate", help="Gate file or expression whose decision the report shows.")
    ] = None,
    calibration: CalibrationFiles = None,
) -> None:
    """Write one report for all given sessions, as report.FORMAT."""
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.reporting.report_data import read_report, with_missing
    from pytest_toolemu.reporting.report_files import write_reports
    from pytest_toolemu.reporting.report_view import recheck_line
    from pytest_toolemu.sessions.planned_cases import missing_runs
    from pytest_toolemu.sessions.reader import newest_evaluations, refuse_playground, run_files
    from pytest_toolemu.settings import FORMATS

    names = [name.strip() for text in formats or ["html"] for name in text.split(",")]
    for name in names:
        if name not in FORMATS:
            raise UsageError(f"--format: {name!r} is not valid; expected one of {', '.join(FORMATS)}")
    refuse_playground(results)
    note_superseded(results)
    data = read_report(newest_evaluations(run_files(results)), results, with_transcripts="html" in names)
    if files := calibration or _calibrations_of(data.manifests):
        from pytest_toolemu.analysis.calibration.calibration_file import read_calibrations

        data = replace(data, calibrations=read_calibrations(files))
    if gates:
        from pytest_toolemu.sessions.stored_decision import decide_stored

        stored = data.run_summaries
        data = replace(data, decisions=decide_stored(results, lambda: stored, gates, files).decisions)
    whole_sessions = [manifest for manifest in data.manifests if manifest.is_plan_complete]
    data = with_missing(data, missing_runs(results, whole_sessions, (run.agent for run in data.run_summaries)))
    folder = to or results[0]
    try:
        paths = write_reports(data, names, folder)
    except OSError as error:
        raise UsageError(f"{folder}: reports cannot be written: {error.strerror}; name a folder with --to") from None
    for path in paths:
        out.print(f"{path}: {counted(len(data.runs), 'run')}", markup=False)
    if line := recheck_line(data.run_summaries):
        out.print(line, markup=False)


def _calibrations_of(manifests: Iterable[Manifest]) -> list[Path]:
    """Return the calibration files that the sessions used, and print a note on missing ones."""
    paths = {Path(manifest.rootdir, name) for manifest in manifests for name in manifest.list_setting("calibration")}
    for path in sorted(paths):
        if not path.is_file():
            err.print(
                f"note: {path} does not exist, so its judges are shown as uncalibrated; name the file with "
                "--calibration",
                markup=False,
            )
    return sorted(path for path in paths if path.is_file())


def show(
    target: Annotated[
        Path,
        typer.Argument(
            parser=session_folder,
            metavar="RECORD|SESSION",
            help="Record of a run, as printed after 'record:' for each failure; or a session folder, or latest.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="CASE",
            help="Run of the session: a case ID, a test ID, or the beginning of a record's name. Without it, the "
            "runs of a session are listed if there are several.",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Also show the thoughts of the agent, the notes of the emulator, and the trap of a built world, "
            "and do not shorten text.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the run as one self-contained JSON record, which every command accepts as a run."
        ),
    ] = False,
) -> None:
    """Print the transcript of a run: instruction, calls with results, answer, verdicts, and cost."""
    from rich.text import Text

    from pytest_toolemu.analysis.agent_summary import AgentSummary
    from pytest_toolemu.cli.run_choice import choose_run
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.reporting.transcript_terminal import hidden_texts, transcript_lines
    from pytest_toolemu.sessions.reader import prices_of, summarize_run
    from pytest_toolemu.sessions.record_text import record_text

    chosen = choose_run(target, name)
    if not isinstance(chosen, Path):
        if as_json:
            raise UsageError(f"--json prints one run; {chosen[-1]} --json")
        out.print("\n".join(chosen), markup=False)
        return
    record = load_run(chosen)
    if as_json:
        typer.echo(record_text(record), nl=False)
        return
    lines = transcript_lines(record, out.width, full=full)
    while batch := list(itertools.islice(lines, _BATCH)):  # much faster than one by one
        out.print(Text("\n").join(batch), soft_wrap=True)
    if not full and (texts := hidden_texts(record)):
        out.print(f"\nnot shown: {texts}; add --full", markup=False)
    summary = summarize_run(record, str(chosen), prices_of(chosen.parent))
    if spending := AgentSummary(summary.agent, (summary,)).spending:
        out.print(f"\nUSD {spending}", markup=False)
