"""``toolemu merge``: the shards of a session, or what several machines ran, as one session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli.consoles import out
from pytest_toolemu.cli.session_folders import session_folder


def merge(
    folders: Annotated[
        list[Path],
        typer.Argument(
            parser=session_folder, metavar="FOLDER", help="Folders of sessions, folders above them, or latest."
        ),
    ],
    into: Annotated[Path, typer.Option(help="The folder of the whole; one that an earlier merge made is replaced.")],
    without: Annotated[
        list[int] | None, typer.Option(help="A shard that may be missing, whole or in part; may be repeated.")
    ] = None,
) -> None:
    """Join sessions of one configuration, such as the shards of one, for gate, report, compare, baseline and the rest.

    Of a run that several have, the one that ended goes before one that broke; other configurations are refused.
    """
    from pytest_toolemu.analysis.run_row import origins
    from pytest_toolemu.analysis.summary import summarize
    from pytest_toolemu.core.structured_output_fallbacks import fallback_text, totals
    from pytest_toolemu.formats.redaction import plain
    from pytest_toolemu.reporting.summary_table import agent_table, emulation_note, missing_note
    from pytest_toolemu.sessions.merge import merge as merged

    whole = merged(folders, into, without or ())
    found = summarize(whole.rows)
    for line in agent_table(found, out.width if out.is_terminal else None):
        out.print(line, markup=False)
    notes = [line for summary in found for line in (missing_note(summary), emulation_note(summary)) if line]
    notes += map(fallback_text, totals(one for row in whole.rows for one in row.fallbacks))
    for line in (*notes, *whole.notes, *origins(whole.rows)):
        out.print(plain(line), markup=False)
    shards = f" of {whole.shards.count} shards" if whole.shards else ""
    out.print(f"{into}: {len(whole.rows):,} runs of {whole.sessions} sessions{shards}", markup=False)
