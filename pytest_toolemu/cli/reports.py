"""``toolemu report`` and ``toolemu show``: stored runs, told to people and to other programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from pytest_toolemu.cli.consoles import err, out
from pytest_toolemu.cli.gates import CalibrationFiles
from pytest_toolemu.cli.session_folders import Sessions, note_superseded


def report(
    results: Sessions,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="html (default), md, json, csv, sarif; may be repeated.")
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Folder for the reports; the first session's when not given.")] = None,
    gates: Annotated[
        list[str] | None, typer.Option("--gate", help="Show what this gate file or expression decides.")
    ] = None,
    calibration: CalibrationFiles = None,
) -> None:
    """Write report.FORMAT for stored sessions, such as the shards of one, together."""
    from pytest_toolemu.core.environment import versions
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.reporting.report_data import read_report
    from pytest_toolemu.reporting.report_files import write_reports
    from pytest_toolemu.reporting.report_view import recheck_line
    from pytest_toolemu.sessions.reader import newest_evaluations, run_files
    from pytest_toolemu.settings import FORMATS

    wanted = [name.strip() for text in formats or ["html"] for name in text.split(",")]
    for name in wanted:
        if name not in FORMATS:
            raise UsageError(f"--format: {name!r} is not valid; expected one of {', '.join(FORMATS)}")
    note_superseded(results)
    found = read_report(newest_evaluations(run_files(results)), results, with_transcripts="html" in wanted)
    if files := calibration or _calibrations_of(found.manifests):
        from pytest_toolemu.analysis.calibration.calibration_file import read_calibrations

        found = replace(found, calibrations=read_calibrations(files))
    if gates:
        from pytest_toolemu.analysis.calibration.calibration_file import judge_kappas
        from pytest_toolemu.analysis.gates.gate_decision import decide_gate_sources

        known = judge_kappas(found.calibrations)
        found = replace(found, decisions=tuple(decide_gate_sources(gates, Path(), found.rows, known)))
    folder = to or results[0]
    try:
        written = write_reports(found, wanted, folder, versions()["pytest-toolemu"])
    except OSError as error:
        raise UsageError(f"{folder}: reports cannot be written: {error.strerror}; name a folder with --to") from None
    for path in written:
        out.print(f"{path}: {len(found.accounts):,} runs", markup=False)
    if line := recheck_line(found.rows):
        out.print(line, markup=False)


def _calibrations_of(manifests: Iterable[dict[str, Any]]) -> list[Path]:
    """The calibrations that the sessions were run with; one that is no longer there is told."""
    named = {
        Path(manifest.get("rootdir", ""), name)
        for manifest in manifests
        for name in (manifest.get("settings", {}).get("calibration") or [()])[0]
    }
    for path in sorted(named):
        if not path.is_file():
            err.print(
                f"{path}: is not there, so its judges show as uncalibrated; name it with --calibration", markup=False
            )
    return sorted(path for path in named if path.is_file())


def show(
    run: Annotated[Path, typer.Argument(help="The file of a run, as failures name it: 'record: ...'.")],
    full: Annotated[
        bool, typer.Option("--full", help="Show the thoughts of agent and emulator too, and long texts whole.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the whole record as JSON, in one self-contained file that commands can read as a run."
        ),
    ] = False,
) -> None:
    """Print one transcript: the instruction, each call with what it returned, the answer, the verdicts, the cost."""
    from pytest_toolemu.analysis.summary import Summary
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.reporting.transcript_terminal import hidden_text_count, transcript_lines
    from pytest_toolemu.sessions.reader import prices_of, stored_row
    from pytest_toolemu.sessions.store import record_text

    if run.is_dir():
        raise UsageError(f"{run}: is a folder; name one of the runs in it, or see all with 'toolemu report {run}'")
    record = load_run(run)
    if as_json:
        typer.echo(record_text(record), nl=False)
        return
    for text in transcript_lines(record, out.width, full=full):
        out.print(text, soft_wrap=True)
    if not full and (count := hidden_text_count(record)):
        out.print(f"\n{count} thoughts and notes of agent and emulator are not shown; add --full", markup=False)
    row = stored_row(record, str(run), prices_of([run.parent]))
    if spending := Summary(row.agent, (row,)).spending:
        out.print(f"\nUSD {spending}", markup=False)
