"""``toolemu toolkit import``: write toolkits for existing tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pytest_toolemu.cli.common import out
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.visible_text import visible

if TYPE_CHECKING:
    from pytest_toolemu.authoring.importers.tool_sources.published_tools import PublishedToolkit

toolkit = typer.Typer(no_args_is_help=True, help="Write toolkits for existing tools.")
imports = typer.Typer(
    no_args_is_help=True, help="Write a toolkit for existing tools, so that the emulator answers in their place."
)
toolkit.add_typer(imports, name="import")

Only = Annotated[
    str,
    typer.Option(
        metavar="REGEX", help="Import the tools whose names contain a match; required if there are more than 40."
    ),
]
Into = Annotated[Path | None, typer.Option(metavar="FILE", help="The new file; default: toolkits/NAME.toolkit.yaml.")]
Diff = Annotated[
    bool,
    typer.Option(
        "--diff", help="Write nothing; show how the file differs from the source, and exit with 1 if it does."
    ),
]
Timeout = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Timeout of the source, in seconds.")]


@imports.command("mcp")
def import_mcp(
    source: Annotated[
        list[str],
        typer.Argument(metavar="URL | -- COMMAND", help="URL of an MCP server, or a command that starts one."),
    ],
    *,
    only: Only = "",
    into: Into = None,
    diff: Diff = False,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="'NAME: VALUE'", help="HTTP header, as 'Authorization: Bearer ${TOKEN}'; repeatable."),
    ] = None,
    timeout: Timeout = 60.0,
) -> None:
    """Import the tools that a server of the Model Context Protocol lists. No tool is called."""
    from pytest_toolemu import __version__
    from pytest_toolemu.authoring.importers.tool_sources.bounded_http import parsed_headers
    from pytest_toolemu.authoring.importers.tool_sources.mcp_tools import tools_of_command, tools_of_url
    from pytest_toolemu.errors import UsageError

    if len(source) == 1 and "://" in source[0]:
        offline = _is_offline()  # first, as this also reads the variables of `.env`
        headers = parsed_headers(header or ())
        _complete(
            lambda: tools_of_url(source[0], headers, timeout, __version__, offline=offline), into, only, diff=diff
        )
    elif header:
        raise UsageError("--header applies only to a server at a URL; pass keys to a command through the environment")
    else:
        _complete(lambda: tools_of_command(source, timeout, __version__), into, only, diff=diff)


@imports.command("openapi")
def import_openapi(
    source: Annotated[str, typer.Argument(metavar="FILE|URL", help="OpenAPI 3 document, as JSON or YAML.")],
    *,
    only: Only = "",
    into: Into = None,
    diff: Diff = False,
    timeout: Timeout = 60.0,
) -> None:
    """Import the operations of an OpenAPI document. Large schemas are cut; the cut parts accept any value."""
    from pytest_toolemu.authoring.importers.tool_sources.openapi_document import read_openapi

    _complete(lambda: read_openapi(source, timeout, offline=_is_offline()), into, only, diff=diff)


@imports.command("functions")
def import_functions(
    file: Annotated[
        Path, typer.Argument(help="JSON file with functions in the format of OpenAI, Anthropic, or Gemini.")
    ],
    *,
    only: Only = "",
    into: Into = None,
    diff: Diff = False,
) -> None:
    """Import the functions in a JSON file: a list in the format of a model provider, or a request that contains one."""
    from pytest_toolemu.authoring.importers.tool_sources.function_lists import read_functions

    _complete(lambda: read_functions(file), into, only, diff=diff)


@imports.command("python")
def import_python(
    target: Annotated[str, typer.Argument(metavar="MODULE:OBJECT", help="A list of tools, an agent, or a function.")],
    *,
    only: Only = "",
    into: Into = None,
    diff: Diff = False,
) -> None:
    """Import the tools of a Python object, whose module is executed. No tool is called."""
    import sys

    from pytest_toolemu.authoring.importers.tool_sources.python_tools import read_python_tools

    # As for `python -m`: a command has no folder of the user on its path.
    sys.path.insert(0, str(Path.cwd()))
    _complete(lambda: read_python_tools(target), into, only, diff=diff)


@imports.command("capture")
def import_capture(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="The command that runs an agent.")],
    *,
    only: Only = "",
    into: Into = None,
    diff: Diff = False,
    timeout: Timeout = 60.0,
) -> None:
    """Run an agent until its first request to a model, and import the tools in that request. No model is called.

    The agent must send its requests to OPENAI_BASE_URL or ANTHROPIC_BASE_URL.
    """
    from pytest_toolemu.authoring.importers.tool_sources.request_capture import capture_tools

    _complete(lambda: capture_tools(command, timeout), into, only, diff=diff)


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
