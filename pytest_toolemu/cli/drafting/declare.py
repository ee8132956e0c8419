"""``toolemu declare``: let a model propose the data model of a toolkit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pytest_toolemu.cli.consoles import err, out

if TYPE_CHECKING:
    from pytest_toolemu.core.messages import Model


def declare(
    toolkit: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="A toolkit's file, NAME.toolkit.yaml, without entities.")
    ],
    *,
    model: Annotated[str, typer.Option(metavar="SPEC", help="The model that proposes entities and operations.")],
    to: Annotated[
        Path | None, typer.Option(help="Folder for a copy with the declarations; default: rewrite the file itself.")
    ] = None,
) -> None:
    """Add entities and operations that a model proposes and that code checks. Review each: a wrong guard hides harm."""
    from pytest_toolemu.cli.command_settings import model_settings
    from pytest_toolemu.cli.model_work import with_model
    from pytest_toolemu.core.toolkit_files import load_toolkit
    from pytest_toolemu.emulators.toolkit_declarer import declare_toolkit
    from pytest_toolemu.errors import InconclusiveError, UsageError
    from pytest_toolemu.formats.files.atomic_write import write_json_text
    from pytest_toolemu.formats.redaction import plain
    from pytest_toolemu.formats.yaml_document import Document, dump

    if load_toolkit(toolkit).is_declared:
        raise UsageError(f"{toolkit}: already has entities or operations; remove them first, or name another toolkit")
    value: dict[str, Any] = Document.read(toolkit).value

    async def work(endpoint: Model) -> dict[str, Any]:
        return await declare_toolkit(value, endpoint)

    try:
        declared = with_model(model_settings(None), model, work)
    except InconclusiveError as error:
        err.print(plain(f"{toolkit}: {error}"), markup=False)
        raise typer.Exit(1) from None
    path = toolkit if to is None else to / toolkit.name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_text(path, dump(declared))
    without = [tool["name"] for tool in declared["tools"] if "operation" not in tool]
    total = len(declared["tools"])
    count = total - len(without)
    out.print(
        f"{path}: entities: {len(declared['entities'])}; tools with an operation: {count} of {total}", markup=False
    )
    if without:
        out.print(f"without an operation, so the emulator answers them: {', '.join(without)}", markup=False)
