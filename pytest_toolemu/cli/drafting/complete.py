"""``toolemu complete``: fill in what is missing in a case or toolkit with a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli.common import err, out
from pytest_toolemu.cli.drafting.author_setup import (
    EstimateOption,
    IntoOption,
    ModelOption,
    print_estimate,
    with_author,
)
from pytest_toolemu.formats.counted import counted


def complete(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The file of a case or toolkit.")],
    *,
    model: ModelOption,
    write: Annotated[bool, typer.Option("--write", help="Write the file without asking.")] = False,
    into: IntoOption = Path("drafts"),
    estimate: EstimateOption = False,
) -> None:
    """Fill in what is missing or contains TODO: in a case or toolkit, and keep everything else, including comments.

    The changes are shown first. Without --write, they are written only if you confirm. The reply is stored in the
    folder of drafts, so that showing and writing cost one request. Exit with 1 if the checks find errors.
    """
    from pytest_toolemu.authoring.completion.complete_file import complete_file, completion_of
    from pytest_toolemu.cli.common import model_settings
    from pytest_toolemu.errors import InconclusiveError
    from pytest_toolemu.formats.files.atomic_write import write_json_text
    from pytest_toolemu.formats.visible_text import visible

    settings, completion = model_settings(None), completion_of(file)
    if not completion.missing_fields:
        out.print(visible(f"{file}: nothing is missing, so nothing was sent"))
        return
    if estimate:
        print_estimate(settings, model, 1, "1 file")
        return
    out.print(visible(f"{file}: missing: {', '.join(completion.missing_fields)}"))
    try:
        completed, tokens = with_author(settings, model, into, lambda author: complete_file(author, completion))
    except InconclusiveError as error:
        err.print(visible(f"{file}: was not completed: {error}"))
        raise typer.Exit(1) from None
    for line in completed.diff:
        out.print(visible(line))
    errors = [finding for finding in completed.findings if finding.level == "error"]
    for finding in errors:
        out.print(visible(f"  {finding}"))
    out.print(f"{counted(len(errors), 'error')}; {tokens[0]:,} input and {tokens[1]:,} output tokens")
    if write or (sys.stdin.isatty() and typer.confirm("Write the file?")):
        write_json_text(file, completed.text)
        out.print(visible(f"{file}: written"))
    else:
        out.print(visible(f"{file}: not changed; use --write to write it"))
    if errors:
        raise typer.Exit(1)
