"""``toolemu merge``: join the shards of a session, or sessions of several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli.consoles import out
from pytest_toolemu.cli.session_folders import session_folder
from pytest_toolemu.formats.counted import counted


def merge(
    folders: Annotated[
        list[Path],
        typer.Argument(parser=session_folder, metavar="FOLDER", help="Session folders, folders above them, or latest."),
    ],
    into: Annotated[
        Path, typer.Option(help="Folder of the merged session; it replaces the result of an earlier merge.")
    ],
    without: Annotated[
        list[int] | None, typer.Option(help="Number of a shard that may be missing or incomplete; may be repeated.")
    ] = None,
) -> None:
    """Join sessions of the same configuration, such as the shards of a session, into one session.

    If several sessions have the same run, a completed one is preferred to a broken one. Sessions of different
    configurations are refused.
    """
    from pytest_toolemu.analysis.agent_summary import summarize_agents
    from pytest_toolemu.analysis.duplicate_runs import duplicate_note
    from pytest_toolemu.analysis.run_summary import origins
    from pytest_toolemu.core.run_notes import note_lines
    from pytest_toolemu.formats.redaction import plain
    from pytest_toolemu.reporting.summary_table import agent_table, emulation_note, missing_note, unjudged_lines
    from pytest_toolemu.sessions.merging.merge_sessions import merge_sessions
    from pytest_toolemu.sessions.reader import manifest_of

    merged = merge_sessions(folders, into, without or ())
    summaries = summarize_agents(merged.runs)
    for line in agent_table(summaries, out.width if out.is_terminal else None):
        out.print(line, markup=False)
    notes = [line for summary in summaries for line in (missing_note(summary), emulation_note(summary)) if line]
    manifest = manifest_of(into)
    has_gates, has_evaluator = (bool(manifest.setting(name)) for name in ("gate", "evaluator"))
    notes += unjudged_lines(merged.runs, into.as_posix(), has_gates=has_gates, has_evaluator=has_evaluator)
    if line := duplicate_note(merged.runs):
        notes.append(f"note: {line}")
    notes += note_lines(run.case_notes for run in merged.runs)
    for line in (*notes, *merged.notes, *origins(merged.runs)):
        out.print(plain(line), markup=False)
    shards = f" of {counted(merged.shards.count, 'shard')}" if merged.shards else ""
    out.print(
        f"{into}: {counted(len(merged.runs), 'run')} of {counted(merged.sessions, 'session')}{shards}", markup=False
    )
