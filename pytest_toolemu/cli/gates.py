"""``toolemu gate`` and ``toolemu baseline``: decide again, later, at no cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli.consoles import out
from pytest_toolemu.cli.session_folders import Sessions, note_superseded

baseline = typer.Typer(no_args_is_help=True, help="Make and show the results that agents are compared with.")

CalibrationFiles = Annotated[
    list[Path] | None, typer.Option("--calibration", help="A file that 'toolemu calibrate' wrote; may be repeated.")
]
File = Annotated[Path, typer.Argument(help="The baseline file; commit it.")]


def gate(
    results: Sessions,
    gates: Annotated[
        list[str] | None,
        typer.Option("--gate", help="A gate file, or an expression; may be repeated. Default: those of the sessions."),
    ] = None,
    calibration: CalibrationFiles = None,
) -> None:
    """Decide whether the agents of stored sessions pass; exit status 1 where one does not, or none can be told.

    Without --gate by the gates that the sessions were given, or where they had none, as pytest does: every case passes.
    """
    from pytest_toolemu.analysis.calibration.calibration_file import calibration_line, judge_kappas, read_calibrations
    from pytest_toolemu.analysis.gates.gate_decision import Decision, decide_every_case, decide_gate_sources
    from pytest_toolemu.analysis.run_row import NOT_RUN, judges_of
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.formats.redaction import plain
    from pytest_toolemu.sessions.planned_cases import missing_rows, unplaced
    from pytest_toolemu.sessions.reader import manifest_of, read_rows, settings_of
    from pytest_toolemu.sessions.shards import absent, gaps

    note_superseded(results)
    manifests = [manifest_of(folder) for folder in results]
    if others := absent(manifests):
        remedy = "put the shards together with 'toolemu merge', which can do without some, and decide on the whole"
        raise UsageError(f"not the whole session: {'; '.join(others)}; {remedy}")
    root = Path()
    if not gates:
        given, root = settings_of(results, ("gate", "calibration"))
        gates, calibration = given["gate"], calibration or [root / name for name in given["calibration"]]
    rows, known = read_rows(results), read_calibrations(calibration or ())
    whole = [manifest for manifest in manifests if not manifest.get("missing")]
    missing = missing_rows(results, whole, (row.agent for row in rows))
    unknown = unplaced(whole)
    rows += missing
    kappas = judge_kappas(known)
    decisions = decide_gate_sources(gates, root, rows, kappas, unknown) if gates else decide_every_case(rows)
    if left := sum(row.outcome == NOT_RUN for row in missing) + unknown:
        text = f"{left} were not run, as the session ended before them; run them with --toolemu-resume"
        decisions.insert(0, Decision("the session", "every case is run", "undecided", text))
    for line in gaps(manifests):
        out.print(plain(f"not the whole session: {line}"), markup=False)
    for judge in judges_of(rows):
        out.print(plain(calibration_line(str(judge), known)), markup=False)
    for decision in decisions:
        out.print(plain(decision.line), markup=False)
    if any(decision.status != "passed" for decision in decisions):
        raise typer.Exit(1)


@baseline.command()
def update(
    results: Sessions, file: Annotated[Path, typer.Option("--to", help="The baseline file; commit it.")]
) -> None:
    """Keep the results of stored sessions as the baseline; says what changed against the file's former content."""
    from datetime import UTC, datetime

    from pytest_toolemu.analysis.gates.baseline import Baseline, baseline_changes, read_baseline
    from pytest_toolemu.sessions.reader import read_rows

    note_superseded(results)
    new = Baseline.of(read_rows(results), datetime.now(UTC).isoformat(timespec="seconds"))
    lines = baseline_changes(read_baseline(file), new) if file.exists() else []
    new.write(file)
    for agent, side in new.agents.items():
        runs = sum(len(case.trials) for case in side.cases.values())
        out.print(f"{file}: {agent}, {len(side.cases)} cases, {runs} runs", markup=False)
    for line in lines:
        out.print(line, markup=False)


@baseline.command()
def show(file: File) -> None:
    """Print what a baseline holds: agents, what they were run with, and their figures."""
    from pytest_toolemu.analysis.gates.baseline import read_baseline
    from pytest_toolemu.analysis.gates.gate_metrics import GATE_METRICS, format_interval

    found = read_baseline(file)
    out.print(f"made {found.made}", markup=False)
    for agent, side in found.agents.items():
        rows = side.rows(agent)
        out.print(f"{agent}: {len(side.cases)} cases, {len(rows)} runs", markup=False)
        out.print(f"  emulator: {', '.join(side.emulators)}", markup=False)
        out.print(f"  judges: {', '.join(side.judges)}", markup=False)
        for name, measure in GATE_METRICS.items():
            if figure := measure.estimate(rows):
                unit = "{:.1%}" if measure.percent else "{:.2f}"
                out.print(f"  {name}: {format_interval(figure, unit)} over {figure.n} runs", markup=False)
