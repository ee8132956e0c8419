"""``toolemu report``, ``show``, ``compare``, ``merge``, ``gate``, and ``baseline``: what stored sessions say."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pytest_toolemu.cli.common import (
    OptionalSessions,
    Session,
    Sessions,
    err,
    note_superseded,
    out,
    session_folder,
    split_commas,
)
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import counted, in_log, visible

if TYPE_CHECKING:
    from pytest_toolemu.sessions.manifest_records import Manifest


CalibrationFiles = Annotated[
    list[Path] | None,
    typer.Option("--calibration", callback=split_commas, help="Files of 'toolemu calibrate', separated by commas."),
]
Gates = Annotated[
    list[str] | None,
    typer.Option(
        "--gate",
        callback=split_commas,
        help="Gate files or expressions, separated by commas; toolemu gate defaults to those of the sessions.",
    ),
]

_BATCH: Final = 1000
"""Lines of a transcript that are printed together."""


def report(
    results: Sessions,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format", callback=split_commas, help="html (default), md, json, csv, otel, separated by commas."
        ),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Folder for the reports; default: the first session.")] = None,
    gates: Gates = None,
    calibration: CalibrationFiles = None,
) -> None:
    """Write one report for all given sessions, as report.FORMAT."""
    from pytest_toolemu.reporting.report_data import read_report, recheck_line, with_missing
    from pytest_toolemu.reporting.report_files import write_reports
    from pytest_toolemu.sessions.store import newest_evaluations, refuse_playground, run_files
    from pytest_toolemu.sessions.stored_decision import missing_runs
    from pytest_toolemu.settings.option_table import FORMATS

    names = formats or ["html"]
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
        out.print(f"{path}: {counted(len(data.runs), 'run')}")
    if "otel" in names:
        from pytest_toolemu.reporting.exchange_formats import send_evaluations

        out.print(visible(send_evaluations(results)))
    if line := recheck_line(data.run_summaries):
        out.print(line)


def _calibrations_of(manifests: Iterable[Manifest]) -> list[Path]:
    """Return the calibration files that the sessions used, and print a note on missing ones."""
    paths = {Path(manifest.rootdir, name) for manifest in manifests for name in manifest.list_setting("calibration")}
    for path in sorted(paths):
        if not path.is_file():
            err.print(
                f"note: {path} does not exist, so its judges are shown as uncalibrated; name the file with "
                "--calibration"
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

    from pytest_toolemu.analysis.metrics import AgentSummary
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.reporting.transcript_terminal import hidden_texts, transcript_lines
    from pytest_toolemu.sessions.store import prices_of, record_text, summarize_run

    chosen = choose_run(target, name)
    if not isinstance(chosen, Path):
        if as_json:
            raise UsageError(f"--json prints one run; {chosen[-1]} --json")
        out.print("\n".join(chosen))
        return
    record = load_run(chosen)
    if as_json:
        typer.echo(record_text(record), nl=False)
        return
    lines = transcript_lines(record, out.width, full=full)
    while batch := list(itertools.islice(lines, _BATCH)):  # much faster than one by one
        out.print(Text("\n").join(batch), soft_wrap=True)
    if not full and (texts := hidden_texts(record)):
        out.print(f"\nnot shown: {texts}; add --full")
    summary = summarize_run(record, str(chosen), prices_of(chosen.parent))
    if spending := AgentSummary(summary.agent, (summary,)).spending:
        out.print(f"\nUSD {spending}")


def choose_run(target: Path, name: str | None) -> Path | list[str]:
    """Return the record to show, or a list of the session's runs as lines of text if several are possible.

    ``target`` is a record or the folder of a session. ``name`` is a case ID, the ID of a test, or the beginning of a
    record's file name. UsageError if there is no such run.
    """
    from pytest_toolemu.sessions.store import manifest_of, run_files
    from pytest_toolemu.sessions.stored_decision import missing_runs

    if not target.is_dir():
        if name is not None:
            raise UsageError(
                f"{target} is not the folder of a session; remove {name!r}, or name the folder of a session"
            )
        return target
    files = run_files([target])
    chosen = files if name is None else _runs_named(target, files, name)
    missing = missing_runs([target], [manifest_of(target)], ()) if name is None else []
    if len(chosen) == 1 and not missing:
        return chosen[0]
    return [*(f"{run.outcome:<12}  {run.case}" for run in missing), *_listed(target, chosen, files)]


def _runs_named(folder: Path, files: Sequence[Path], name: str) -> list[Path]:
    from pytest_toolemu.formats.identifiers import file_stem
    from pytest_toolemu.formats.yaml_document import closest
    from pytest_toolemu.sessions.store import item_hash, item_hash_of

    case_id = name.rpartition("::")[2].partition("[")[0]
    of_case = [file for file in files if _case_part(file) == file_stem(case_id)]
    of_test = [file for file in of_case if "::" in name and item_hash_of(file.name) == item_hash(name)]
    chosen = of_test or of_case or [file for file in files if name and file.name.startswith(name)]
    if not chosen:
        raise UsageError(f"{folder}: there is no run of a case {name!r}{closest(name, set(map(_case_part, files)))}")
    return chosen


def _listed(folder: Path, chosen: Sequence[Path], files: Sequence[Path]) -> Iterator[str]:
    """Yield a line for each run: outcome, a name that this command accepts, and the agent; then how to show one."""
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.sessions.store import prices_of, summarize_run

    prices = prices_of(folder)
    cases = [_case_part(file) for file in files]
    names = [file.stem if cases.count(_case_part(file)) > 1 else _case_part(file) for file in chosen]
    width = max(map(len, names))
    for file, name in zip(chosen, names, strict=True):
        run = summarize_run(load_run(file), str(file), prices)
        trial = f", trial {run.trial}" if run.trial > 1 else ""
        yield in_log(visible(f"{run.outcome!s:<12}  {name:<{width}}  {run.agent}{trial}"))
    how = f"to show one, add its name from the second column; for example: toolemu show {folder} {names[0]}"
    yield f"{counted(len(chosen), 'run')}; {how}"


def _case_part(file: Path) -> str:
    """Return the part of a record's file name that identifies the case."""
    return file.name.rpartition("--")[0]


def compare(
    before: Session,
    after: Session,
    to: Annotated[
        Path | None,
        typer.Option(help="Write the comparison to this HTML file, with transcripts side by side.", dir_okay=False),
    ] = None,
) -> None:
    """Compare two sessions case by case: changed verdicts, changes of metrics, and where transcripts first differ."""
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.formats.file_access import write_atomically
    from pytest_toolemu.reporting.comparison import compare_sessions, first_divergence
    from pytest_toolemu.reporting.html_report import comparison_page, comparison_text
    from pytest_toolemu.sessions.store import read_run_summaries

    if to is not None:
        page = comparison_page(before, after)
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(to, page)
        except OSError as error:
            raise UsageError(f"{to}: cannot be written: {error.strerror}; name another file with --to") from None
        out.print(str(to))
        return
    for comparison in compare_sessions(read_run_summaries([before]), read_run_summaries([after])):
        text = comparison_text(
            comparison, lambda old, new: first_divergence(load_run(Path(old.path)), load_run(Path(new.path)))
        )
        for line in text.splitlines():
            out.print(in_log(line))


def merge(
    folders: Annotated[
        list[Path],
        typer.Argument(parser=session_folder, metavar="FOLDER", help="Session folders, folders above them, or latest."),
    ],
    into: Annotated[
        Path, typer.Option(help="Folder of the merged session; it replaces the result of an earlier merge.")
    ],
    without: Annotated[
        str, typer.Option(metavar="NUMBERS", help="Shards that may be missing or incomplete, separated by commas.")
    ] = "",
) -> None:
    """Join sessions of the same configuration, such as the shards of a session, into one session.

    If several sessions have the same run, a completed one is preferred to a broken one. Sessions of different
    configurations are refused.
    """
    from pytest_toolemu.analysis.metrics import duplicate_note, summarize_agents
    from pytest_toolemu.analysis.run_summary import origins
    from pytest_toolemu.core.run_notes import note_lines
    from pytest_toolemu.reporting.summary_table import agent_notes, agent_table, missing_note, unjudged_lines
    from pytest_toolemu.sessions.merge_sessions import merge_sessions
    from pytest_toolemu.sessions.store import manifest_of

    numbers = [part.strip() for part in without.split(",") if part.strip()]
    if wrong := [part for part in numbers if not part.isdecimal()]:
        raise UsageError(f"--without: {wrong[0]!r} is not the number of a shard; write numbers such as 3,7")
    merged = merge_sessions(folders, into, list(map(int, numbers)))
    summaries = summarize_agents(merged.runs)
    for line in agent_table(summaries, out.width if out.is_terminal else None):
        out.print(line)
    notes = [line for summary in summaries for line in (missing_note(summary), *agent_notes(summary)) if line]
    manifest = manifest_of(into)
    has_gates, has_evaluator = (bool(manifest.setting(name)) for name in ("gate", "evaluator"))
    notes += unjudged_lines(merged.runs, into.as_posix(), has_gates=has_gates, has_evaluator=has_evaluator)
    if line := duplicate_note(merged.runs):
        notes.append(f"note: {line}")
    notes += note_lines(run.case_notes for run in merged.runs)
    for line in (*notes, *merged.notes, *origins(merged.runs)):
        out.print(visible(line))
    shards = f" of {counted(merged.shards, 'shard')}" if merged.shards else ""
    out.print(f"{into}: {counted(len(merged.runs), 'run')} of {counted(merged.sessions, 'session')}{shards}")


def gate(results: Sessions, gates: Gates = None, calibration: CalibrationFiles = None) -> None:
    """Decide gates on stored sessions; exit with 1 if any gate fails or is undecided.

    Without --gate, the gates of the sessions are used. If they had none, every case must pass, as in pytest.
    """
    from pytest_toolemu.analysis.calibration.calibration_file import calibration_line
    from pytest_toolemu.analysis.metrics import duplicate_note
    from pytest_toolemu.analysis.run_summary import judges_of
    from pytest_toolemu.core.run_notes import notes_in_words
    from pytest_toolemu.sessions.store import read_run_summaries
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
    from pytest_toolemu.core.run import UNJUDGED
    from pytest_toolemu.sessions.shard_assignment import gaps
    from pytest_toolemu.sessions.store import manifest_of, read_run_summaries
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
    for agent, summary in new.agents.items():
        out.print(f"{file}: {agent}, {counted(len(summary.cases), 'case')}, {counted(summary.n, 'run')}")
    for line in changes:
        out.print(line)


def _show(file: Path) -> None:
    from pytest_toolemu.analysis.gates.baseline import conditions_of, read_baseline
    from pytest_toolemu.analysis.metrics import GATE_METRICS, format_interval

    content = read_baseline(file)
    out.print(f"created {content.made}")
    for agent, summary in content.agents.items():
        conditions = conditions_of(summary.runs)
        out.print(f"{agent}: {counted(len(summary.cases), 'case')}, {counted(summary.n, 'run')}")
        out.print(f"  emulator: {conditions['emulator']}\n  judges: {conditions['judges']}")
        for name, metric in GATE_METRICS.items():
            if estimate := metric.estimate(summary.runs):
                out.print(f"  {name}: {format_interval(estimate, metric.pattern)} over {counted(estimate.n, 'run')}")
