"""``toolemu gate`` and ``toolemu baseline``: gates on stored sessions, without any model request."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli.common import out
from pytest_toolemu.cli.session_folders import OptionalSessions, Sessions, note_superseded
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.visible_text import visible

CalibrationFiles = Annotated[
    list[Path] | None, typer.Option("--calibration", help="Calibration file of 'toolemu calibrate'; may be repeated.")
]


def gate(
    results: Sessions,
    gates: Annotated[
        list[str] | None,
        typer.Option("--gate", help="Gate file or expression; may be repeated. Default: the gates of the sessions."),
    ] = None,
    calibration: CalibrationFiles = None,
) -> None:
    """Decide gates on stored sessions; exit with 1 if any gate fails or is undecided.

    Without --gate, the gates of the sessions are used. If they had none, every case must pass, as in pytest.
    """
    from pytest_toolemu.analysis.calibration.calibration_file import calibration_line
    from pytest_toolemu.analysis.metrics import duplicate_note
    from pytest_toolemu.analysis.run_summary import judges_of
    from pytest_toolemu.core.run_notes import notes_in_words
    from pytest_toolemu.sessions.reader import read_run_summaries
    from pytest_toolemu.sessions.stored_decision import decide_stored

    note_superseded(results)
    decided = decide_stored(results, lambda: read_run_summaries(results), gates or (), calibration or ())
    for line in decided.gaps:
        out.print(visible(f"not the whole session: {line}"))
    for judge in judges_of(decided.runs):
        out.print(visible(calibration_line(str(judge), decided.calibrations)))
    notes = [f"note: {line}" if (line := duplicate_note(decided.runs)) else ""]
    named = notes_in_words(run.case_notes for run in decided.runs)
    notes += [line for kind, line in named if kind == "reported model"]
    for line in filter(None, notes):
        out.print(visible(line))
    for decision in decided.decisions:
        out.print(visible(decision.line))
    if any(decision.status != "passed" for decision in decided.decisions):
        raise typer.Exit(1)


def baseline(
    results: OptionalSessions = None,
    *,
    file: Annotated[Path, typer.Option("--to", help="The baseline file; commit it.")],
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Accept sessions that did not run all cases.")
    ] = False,
) -> None:
    """Write the results of stored sessions as the baseline, and print what changed; without sessions, print it."""
    if results:
        _update(results, file, incomplete)
    else:
        _show(file)


def _update(results: list[Path], file: Path, incomplete: bool) -> None:

    from pytest_toolemu.analysis.gates.baseline import Baseline, baseline_changes, read_baseline
    from pytest_toolemu.analysis.metrics import duplicate_note
    from pytest_toolemu.core.verdict import UNJUDGED
    from pytest_toolemu.sessions.reader import manifest_of, read_run_summaries
    from pytest_toolemu.sessions.shard_assignment import gaps
    from pytest_toolemu.sessions.stored_decision import completed, missing_runs, unplaced

    note_superseded(results)
    manifests = completed(results, [manifest_of(folder) for folder in results])
    missing = missing_runs(results, manifests, ())
    problems = [
        f"{folder} has no session.json, so it is unknown which cases were planned; restore the file"
        for folder, manifest in zip(results, manifests, strict=True)
        if manifest.is_empty
    ]
    if count := len(missing) + unplaced(manifests):
        have = "has" if count == 1 else "have"
        problems.append(f"{counted(count, 'planned case')} {have} no record; run them with --toolemu-resume")
    if lines := gaps(manifests):
        problems.append(f"not the whole session: {'; '.join(lines)}; merge all shards with 'toolemu merge'")
    if problems and not incomplete:
        raise UsageError(f"{problems[0]}, or add --incomplete for a baseline of the records that are there")
    runs = read_run_summaries(results)
    if unjudged := sum(run.outcome == UNJUDGED for run in (*runs, *missing)):
        raise UsageError(
            f"{counted(unjudged, 'run')} of these sessions {'is' if unjudged == 1 else 'are'} {UNJUDGED}, so there is "
            "nothing to compare with; run 'toolemu judge', and name the folder of the new records"
        )
    if line := duplicate_note(runs):
        raise UsageError(f"{line}, and a baseline has one result of each trial; name the session that counts")
    new = Baseline.of(runs, datetime.now(UTC).isoformat(timespec="seconds"))
    changes = baseline_changes(read_baseline(file), new) if file.exists() else []
    new.write(file)
    for agent, results_of_agent in new.agents.items():
        trials = sum(len(case.trials) for case in results_of_agent.cases.values())
        out.print(f"{file}: {agent}, {counted(len(results_of_agent.cases), 'case')}, {counted(trials, 'run')}")
    for line in changes:
        out.print(line)


def _show(file: Path) -> None:
    from pytest_toolemu.analysis.gates.baseline import read_baseline
    from pytest_toolemu.analysis.metrics import GATE_METRICS, format_interval

    content = read_baseline(file)
    out.print(f"created {content.made}")
    for agent, results in content.agents.items():
        runs = results.run_summaries(agent)
        out.print(f"{agent}: {counted(len(results.cases), 'case')}, {counted(len(runs), 'run')}")
        out.print(f"  emulator: {', '.join(results.emulators)}")
        out.print(f"  judges: {', '.join(results.judges)}")
        for name, metric in GATE_METRICS.items():
            if estimate := metric.estimate(runs):
                pattern = "{:.1%}" if metric.percent else "{:.2f}"
                out.print(f"  {name}: {format_interval(estimate, pattern)} over {counted(estimate.n, 'run')}")
