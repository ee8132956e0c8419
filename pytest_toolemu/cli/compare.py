"""``toolemu compare``: compare two stored sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli.consoles import out
from pytest_toolemu.cli.session_folders import Session


def compare(
    before: Session,
    after: Session,
    to: Annotated[
        Path | None,
        typer.Option(help="Write the comparison to this HTML file, with transcripts side by side.", dir_okay=False),
    ] = None,
) -> None:
    """Compare two sessions case by case: changed verdicts, changes of metrics, and where transcripts first differ."""
    if to is not None:
        _write_page(before, after, to)
        return
    from pytest_toolemu.core.run_file import load_run
    from pytest_toolemu.formats.redaction import in_log
    from pytest_toolemu.reporting.comparison.comparison_text import comparison_lines
    from pytest_toolemu.reporting.comparison.first_divergence import first_divergence
    from pytest_toolemu.reporting.comparison.session_comparison import compare_sessions
    from pytest_toolemu.sessions.reader import read_run_summaries

    for comparison in compare_sessions(read_run_summaries([before]), read_run_summaries([after])):
        for line in comparison_lines(
            comparison, lambda old, new: first_divergence(load_run(Path(old.path)), load_run(Path(new.path)))
        ):
            out.print(in_log(line), markup=False)


def _write_page(before: Path, after: Path, file: Path) -> None:
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.formats.files.atomic_write import write_json_text
    from pytest_toolemu.reporting.comparison.html_comparison import comparison_page

    page = comparison_page(before, after)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json_text(file, page)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}; name another file with --to") from None
    out.print(str(file), markup=False)
