"""Commands that read what sessions left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli.sessions import Session
from pytest_toolemu.cli.terminal import out


def compare(
    before: Session,
    after: Session,
    to: Annotated[
        Path | None, typer.Option(help="An HTML file instead, with the transcripts side by side.", dir_okay=False)
    ] = None,
) -> None:
    """Compare two sessions case by case, as Markdown: what flipped, by how much, and where the transcripts part."""
    if to is not None:
        _write_page(before, after, to)
        return
    from pytest_toolemu.redaction import in_log
    from pytest_toolemu.reporting.compare import compare_rows, parting
    from pytest_toolemu.reporting.comparison_text import lines
    from pytest_toolemu.results import read_rows
    from pytest_toolemu.store import load_run

    for comparison in compare_rows(read_rows([before]), read_rows([after])):
        for line in lines(comparison, lambda old, new: parting(load_run(Path(old.path)), load_run(Path(new.path)))):
            out.print(in_log(line), markup=False)


def _write_page(before: Path, after: Path, file: Path) -> None:
    from pytest_toolemu.errors import UsageError
    from pytest_toolemu.reporting.comparison_page import comparison_page
    from pytest_toolemu.store import write_json_text

    page = comparison_page(before, after)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json_text(file, page)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}; name another file with --to") from None
    out.print(str(file), markup=False)
