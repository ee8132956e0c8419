"""``toolemu init``, ``new``, ``lint``, ``stats``, and ``pin``: work on files without a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from pytest_toolemu.cli.common import out
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import counted, visible

if TYPE_CHECKING:
    from pytest_toolemu.authoring.dataset_stats import Stats

Paths = Annotated[list[Path] | None, typer.Argument(help="Files or folders; default: the current folder.")]


def lint(
    paths: Paths = None,
    stamp: Annotated[
        bool, typer.Option("--stamp", help="First write the split and canary of the dataset into all of its files.")
    ] = False,
) -> None:
    """Check toolkit, case, and dataset files, and print each problem with its location. Exit with 1 for an error."""
    from pytest_toolemu.authoring.lint import lint_paths

    for folder in (paths or [Path()]) if stamp else ():
        _stamp(folder)
    result = lint_paths(paths or [Path()])
    for problem in result.problems:
        out.print(visible(str(problem)))
    tools = sum(len(toolkit.tools) for toolkit in result.toolkits.values())
    toolkits, cases = counted(len(result.toolkits), "toolkit"), counted(len(result.cases), "case")
    errors, warnings = (counted(result.count(level), level) for level in ("error", "warning"))
    out.print(f"{toolkits}, {counted(tools, 'tool')}, {cases}; {result.origin}: {errors}, {warnings}")
    if result.count("error") or not result.read:
        raise typer.Exit(1)


def stats(
    paths: Paths = None,
    into: Annotated[
        Path | None, typer.Option(help="Write the tables as Markdown between the markers in this file.")
    ] = None,
) -> None:
    """Print statistics of toolkits, tools, and cases."""
    from pytest_toolemu.authoring.dataset_stats import as_markdown
    from pytest_toolemu.authoring.dataset_stats import stats as dataset_stats

    result = dataset_stats(paths or [Path()])
    if into is not None:
        changed = write_into(into, as_markdown(result))
        out.print(f"{into}: {'written' if changed else 'is up to date'}")
    else:
        _print_tables(result)


def _stamp(folder: Path) -> None:
    from pytest_toolemu.authoring.stamp import stamp

    result = stamp(folder)
    share = f"{result.heldout} held out, {result.heldout / max(result.cases, 1):.1%}"
    counts = f"{counted(result.cases, 'case')} ({share}), {counted(result.toolkits, 'toolkit')}"
    name = f"{result.dataset.name} {result.dataset.version}"
    out.print(f"{name}: {counts}; {counted(len(result.written), 'file')} written")


def pin(
    run: Annotated[Path, typer.Argument(help="Record of a run, as shown in the terminal.")],
    to: Annotated[
        Path | None, typer.Option(help="File or folder for a copy of the case; default: the case file itself.")
    ] = None,
) -> None:
    """Add the tool results of a run to its case as pins, so that other agents get the same results."""
    from pytest_toolemu.authoring.pin import pin_run

    path, added, notes = pin_run(run, to)
    out.print(f"{counted(added, 'pin')} added to {path}")
    for note in notes:
        out.print(visible(f"note: {note}"))


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the project; default: the current folder.")] = Path(),
) -> None:
    """Write a small project: toolkit, case, an agent that fails it, gate, and workflow. Existing files are kept."""
    from pytest_toolemu.authoring.starter import write_starter

    project = write_starter(folder)
    for path in project.written:
        out.print(visible(f"written: {path}"))
    for path in project.kept:
        out.print(visible(f"already exists, kept: {path}"))
    if project.configuration is not None:
        out.print(
            visible(f"{project.configuration} already configures pytest; name the agent there: ")
            + "toolemu_agent = my_agent.py:answer"
        )
    where = "" if folder == Path() else visible(f"cd {folder} && ")
    out.print(f"Next: {where}pytest; one case fails, and the output explains why")


def new(
    kind: Annotated[Literal["toolkit", "case", "schemas"], typer.Argument(help="What to write.")],
    name: Annotated[str, typer.Argument(help="Name of the toolkit, ID of the case, or folder of the JSON Schemas.")],
    toolkits: Annotated[str, typer.Option(help="Names of the toolkits of a case, separated by commas.")] = "",
    into: Annotated[Path | None, typer.Option(help="Folder of the file; default: toolkits or cases.")] = None,
) -> None:
    """Write a commented toolkit or case, in which you replace each TODO, or the JSON Schemas of all file formats."""
    from pytest_toolemu.authoring.json_schemas import write_schemas
    from pytest_toolemu.authoring.starter import new_case, new_toolkit

    if kind == "schemas":
        for path in write_schemas(Path(name)):
            out.print(visible(str(path)))
        return
    if kind == "toolkit":
        path = new_toolkit(name, into or Path("toolkits"))
    else:
        names = tuple(one.strip() for one in toolkits.split(",") if one.strip())
        path = new_case(name, names, into or Path("cases"))
    out.print(visible(f"written: {path}; replace each 'TODO:', then run: toolemu lint {path}"))


BEGIN: Final = "<!-- toolemu stats -->"
END: Final = "<!-- /toolemu stats -->"


def _print_tables(stats: Stats) -> None:
    """Print the tables, side by side as far as they fit."""
    from rich.columns import Columns
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table as Grid
    from rich.text import Text

    from pytest_toolemu.core.case import origin

    groups = []
    for table in stats.tables:
        grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False)
        for index, column in enumerate([*table.columns, *(["share"] if table.total else [])]):
            justify: Literal["left", "right"] = "right" if index else "left"
            grid.add_column(column, justify=justify, style="" if index else "cyan", overflow="fold")
        for name, *counts in table.rows:
            cells = [name, *map(str, counts), *([table.share(counts[0])] if table.total else [])]
            grid.add_row(*(Text(visible(cell)) for cell in cells))
        groups.append(Padding(Group(Text(table.title, style="bold"), grid), (1, 0, 0, 0), expand=False))
    out.print(Text(visible(origin(stats.editions, stats.outside)), style="bold"))
    out.print(Columns(groups, padding=(0, 3)))


def write_into(path: Path, text: str) -> bool:
    """Write text between the two markers of a file, and return whether it changed; UsageError without markers."""
    from pytest_toolemu.formats.file_access import write_atomically
    from pytest_toolemu.formats.yaml_document import read_text

    document = read_text(path)
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise UsageError(
            f"{path} has no markers for the tables; add the lines {BEGIN} and {END} where the tables belong"
        )
    changed = f"{before}{begin}\n{text}{end}{after}"
    if changed != document:
        write_atomically(path, changed)
    return changed != document
