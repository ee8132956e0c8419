"""The ``toolemu`` command, whose help shows its commands in groups."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from pytest_toolemu.cli import (
    build_worlds,
    calibrate,
    case_files,
    drafting,
    importing,
    judging,
    results,
    review,
    slurm,
    ui,
)
from pytest_toolemu.cli import serve as serve_commands
from pytest_toolemu.cli.common import err, out
from pytest_toolemu.errors import ToolemuError
from pytest_toolemu.formats.redaction import redact_writes
from pytest_toolemu.formats.text import visible

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # joins the lines of paragraphs
    context_settings={"help_option_names": ["-h", "--help"]},
)

_EVERYDAY = "Everyday (run cases with pytest; see pytest --help)"
app.command("init", rich_help_panel=_EVERYDAY)(case_files.init)
app.command("new", rich_help_panel=_EVERYDAY)(case_files.new)
importing.importers.command("tools")(importing.import_tools)
app.add_typer(importing.importers, name="import", rich_help_panel=_EVERYDAY)
app.command("lint", rich_help_panel=_EVERYDAY)(case_files.lint)
app.command("show", rich_help_panel=_EVERYDAY)(results.show)
app.command("ui", rich_help_panel=_EVERYDAY)(ui.ui)
app.command("report", rich_help_panel=_EVERYDAY)(results.report)
app.command("compare", rich_help_panel=_EVERYDAY)(results.compare)
app.command("judge", rich_help_panel=_EVERYDAY)(judging.judge)
app.command("gate", rich_help_panel=_EVERYDAY)(results.gate)
app.command("baseline", rich_help_panel=_EVERYDAY)(results.baseline)

_ADVANCED = "Advanced"
app.add_typer(drafting.generate, name="generate", rich_help_panel=_ADVANCED)
app.command("complete", rich_help_panel=_ADVANCED)(drafting.complete)
app.command("vary", rich_help_panel=_ADVANCED)(drafting.vary)
app.command("check", rich_help_panel=_ADVANCED)(review.check)
app.command("review", rich_help_panel=_ADVANCED)(review.review)
app.command("export", rich_help_panel=_ADVANCED)(importing.export)
app.command("pin", rich_help_panel=_ADVANCED)(case_files.pin)
app.command("stats", rich_help_panel=_ADVANCED)(case_files.stats)
app.command("worlds", rich_help_panel=_ADVANCED)(build_worlds.worlds)
app.command("serve", rich_help_panel=_ADVANCED)(serve_commands.serve)
app.command("slurm", rich_help_panel=_ADVANCED)(slurm.slurm)
app.command("merge", rich_help_panel=_ADVANCED)(results.merge)
app.command("label", rich_help_panel=_ADVANCED)(calibrate.label)
app.command("calibrate", rich_help_panel=_ADVANCED)(calibrate.calibrate)


def _print_version(requested: bool) -> None:
    if requested:
        from pytest_toolemu import __version__

        out.print(f"toolemu {__version__}")
        raise typer.Exit


@app.callback()
def _toolemu(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Test LM agents in a world emulated by a language model."""


def main() -> None:
    """Run the command; an error that the user can fix is printed to stderr, with exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # its encoding may lack characters, such as those of frames
            stream.reconfigure(errors="backslashreplace")
        redact_writes(stream)
    try:
        app()
    except ToolemuError as error:
        err.print(visible(str(error)))
        raise SystemExit(2) from None
