"""Commands that read what sessions left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli.terminal import out


def compare(
    before: Annotated[Path, typer.Argument(help="Folder of the earlier session.")],
    after: Annotated[Path, typer.Argument(help="Folder of the later session.")],
) -> None:
    """Compare two sessions case by case, as Markdown: what flipped, by how much, and where the transcripts part."""
    from pytest_toolemu.reporting.compare import compare_rows, parting
    from pytest_toolemu.reporting.comparison_text import lines
    from pytest_toolemu.results import read_rows
    from pytest_toolemu.store import load_run

    for comparison in compare_rows(read_rows([before]), read_rows([after])):
        for line in lines(comparison, lambda old, new: parting(load_run(Path(old.path)), load_run(Path(new.path)))):
            out.print(line, markup=False)
