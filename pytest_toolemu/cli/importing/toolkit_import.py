"""``toolemu import tools``: write toolkits for existing tools."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pytest_toolemu.cli.common import out
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.visible_text import visible

if TYPE_CHECKING:
    from pytest_toolemu.authoring.importers.tool_sources.published_tools import PublishedToolkit

Kind = Literal["mcp", "openapi", "functions", "python", "capture"]


def import_tools(
    kind: Annotated[
        Kind,
        typer.Argument(
            help="mcp: a server of the Model Context Protocol; openapi: an OpenAPI 3 document; functions: a JSON file "
            "with functions as in requests to model providers; python: a list of tools, an agent, or a function, whose "
            "module is executed; capture: an agent that runs until its first request, sent to OPENAI_BASE_URL or "
            "ANTHROPIC_BASE_URL."
        ),
    ],
    source: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE | -- COMMAND", help="URL, file, MODULE:OBJECT, or the command to start."),
    ],
    *,
    only: Annotated[
        str,
        typer.Option(
            metavar="REGEX", help="Import the tools whose names contain a match; required if there are more than 40."
        ),
    ] = "",
    into: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The new file; default: toolkits/NAME.toolkit.yaml.")
    ] = None,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff", help="Write nothing; show how the file differs from the source, and exit with 1 if it does."
        ),
    ] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME: VALUE'", help="HTTP header for mcp, as 'Authorization: Bearer ${TOKEN}'; repeatable."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Timeout of the source, in seconds.")
    ] = 60.0,
) -> None:
    """Write a toolkit for existing tools, so that the emulator answers in their place. No tool or model is called."""
    is_url = len(source) == 1 and "://" in source[0]
    if header and not (kind == "mcp" and is_url):
        raise UsageError("--header applies only to a server at a URL; pass keys to a command through the environment")
    if len(source) > 1 and kind not in ("mcp", "capture"):
        raise UsageError(f"toolemu import tools {kind} takes one source, not {len(source)}: {' '.join(source)}")
    _complete(_reader(kind, source, header or (), timeout), into, only, diff=diff)


def _reader(kind: Kind, source: list[str], header: Sequence[str], timeout: float) -> Callable[[], PublishedToolkit]:
    """Return the function that reads the tools of a source."""
    if kind == "mcp":
        return _mcp_reader(source, header, timeout)
    if kind == "openapi":
        from pytest_toolemu.authoring.importers.tool_sources.openapi_document import read_openapi

        return lambda: read_openapi(source[0], timeout, offline=_is_offline())
    if kind == "functions":
        from pytest_toolemu.authoring.importers.tool_sources.function_lists import read_functions

        return lambda: read_functions(Path(source[0]))
    if kind == "python":
        from pytest_toolemu.authoring.importers.tool_sources.python_tools import read_python_tools

        # As for `python -m`: a command has no folder of the user on its path.
        sys.path.insert(0, str(Path.cwd()))
        return lambda: read_python_tools(source[0])
    from pytest_toolemu.authoring.importers.tool_sources.request_capture import capture_tools

    return lambda: capture_tools(source, timeout)


def _mcp_reader(source: list[str], header: Sequence[str], timeout: float) -> Callable[[], PublishedToolkit]:
    from pytest_toolemu import __version__
    from pytest_toolemu.authoring.importers.tool_sources.bounded_http import parsed_headers
    from pytest_toolemu.authoring.importers.tool_sources.mcp_tools import tools_of_command, tools_of_url

    if len(source) == 1 and "://" in source[0]:
        offline = _is_offline()  # first, as this also reads the variables of `.env`
        headers = parsed_headers(header)
        return lambda: tools_of_url(source[0], headers, timeout, __version__, offline=offline)
    return lambda: tools_of_command(source, timeout, __version__)


def _is_offline() -> bool:
    from pytest_toolemu.cli.common import model_settings

    return model_settings(None).offline


def _complete(read: Callable[[], PublishedToolkit], into: Path | None, only: str, *, diff: bool) -> None:
    """Write the file and state what was guessed; with ``diff``, show how the file differs from the source."""
    from pytest_toolemu.authoring.importers.tool_sources.import_toolkit import default_path, import_toolkit

    published = read()
    path = into or default_path(published)
    if diff:
        _print_differences(published, path, only)
        return
    result = import_toolkit(published, path, only)
    _print(f"{path}: {counted(len(result.tools), 'tool')}")
    _print_notes(published)
    if guesses := [f"{part} of {counted(count, 'tool')}" for part, count in result.guesses.items()]:
        _print(f"guessed, because the source does not state them: {', '.join(guesses)}")
        _print(f"Next: check what 'inferred' lists, remove it, and run: toolemu lint {path}")


def _print_differences(published: PublishedToolkit, path: Path, only: str) -> None:
    from pytest_toolemu.authoring.importers.tool_sources.toolkit_drift import differences

    lines = differences(published, path, only)
    for line in lines:
        _print(line)
    _print_notes(published)
    _print(f"{path}: {counted(len(lines), 'difference')} from {published.origin}")
    if lines:
        raise typer.Exit(1)


def _print_notes(published: PublishedToolkit) -> None:
    from pytest_toolemu.authoring.importers.notes import note_lines

    for line in note_lines(published.notes):
        _print(line)


def _print(line: str) -> None:
    out.print(visible(line))
