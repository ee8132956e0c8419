"""``toolemu init`` and ``toolemu new``: files to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pytest_toolemu.cli.consoles import out
from pytest_toolemu.formats.redaction import plain

new = typer.Typer(no_args_is_help=True, help="Write a commented toolkit or case to start from.")


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the project; default: the current folder.")] = Path(),
) -> None:
    """Write a small project: toolkit, case, an agent that fails it, gate, and workflow. Existing files are kept."""
    from pytest_toolemu.authoring.scaffold.starter import write_starter

    project = write_starter(folder)
    for path in project.written:
        out.print(plain(f"written: {path}"), markup=False)
    for path in project.kept:
        out.print(plain(f"already exists, kept: {path}"), markup=False)
    if project.configuration is not None:
        out.print(
            plain(f"{project.configuration} already configures pytest; name the agent there: ")
            + "toolemu_agent = my_agent.py:answer",
            markup=False,
        )
    where = "" if folder == Path() else plain(f"cd {folder} && ")
    out.print(f"Next: {where}pytest; one case fails, and the output explains why", markup=False)


@new.command("toolkit")
def toolkit(
    name: Annotated[str, typer.Argument(help="Name of the toolkit, such as BankManager.")],
    into: Annotated[Path, typer.Option(help="Folder of the file.")] = Path("toolkits"),
) -> None:
    """Write a commented toolkit with an entity and two tools; replace each TODO."""
    from pytest_toolemu.authoring.scaffold.new_file import new_toolkit

    _print_written(new_toolkit(name, into))


@new.command("case")
def case(
    case_id: Annotated[str, typer.Argument(metavar="ID", help="ID of the case, which is the name of its file.")],
    *,
    toolkits: Annotated[str, typer.Option(help="Names of its toolkits, separated by commas.")],
    into: Annotated[Path, typer.Option(help="Folder of the file.")] = Path("cases"),
) -> None:
    """Write a commented case for these toolkits; replace each TODO."""
    from pytest_toolemu.authoring.scaffold.new_file import new_case

    names = tuple(name.strip() for name in toolkits.split(",") if name.strip())
    _print_written(new_case(case_id, names, into))


def _print_written(path: Path) -> None:
    out.print(plain(f"written: {path}; replace each 'TODO:', then run: toolemu lint {path}"), markup=False)
