"""``toolemu ui``: sessions and their runs in a browser."""

from __future__ import annotations

import html
import tempfile
import threading
import webbrowser
from pathlib import Path
from typing import Annotated, Final

import typer

from pytest_toolemu.cli.common import err, out, session_folder
from pytest_toolemu.errors import UsageError

_FULL_ACCESS: Final = "read and change everything, and run programs in the playground"


def ui(
    directory: Annotated[
        Path | None,
        typer.Argument(
            parser=session_folder,
            metavar="[DIR]",
            help="Run directory, or the folder of a session, or latest; default: the run directory of the project.",
        ),
    ] = None,
    *,
    port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Port; default: 8731, or a free one if it is in use.")
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address to listen on; other computers can reach any address except loopback."
        ),
    ] = "127.0.0.1",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the URL.")] = False,
    labels: Annotated[Path, typer.Option(help="Folder for the label files of people.")] = Path("labels"),
    drafts: Annotated[Path, typer.Option(help="Folder of the drafts to review.")] = Path("drafts"),
    suite: Annotated[Path, typer.Option(help="Folder with the cases/ and toolkits/ into which drafts move.")] = Path(),
    read_only: Annotated[bool, typer.Option("--read-only", help="Read-only: refuse every change.")] = False,
) -> None:
    """Show sessions and their runs in a browser, until Ctrl-C.

    Only this computer can connect, and only the browser that opened the printed URL: its token is valid once.
    """
    from pytest_toolemu.cli.common import run_directory
    from pytest_toolemu.models.sdk_versions import require_sdk

    require_sdk("serve", "toolemu ui")
    folder = run_directory() if directory is None else directory
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; name a run directory, such as .toolemu, or a session in it")
    for option, path in (("--labels", labels), ("--drafts", drafts)):
        if path.exists() and not path.is_dir():
            raise UsageError(f"{option}: {path} is not a folder; name a folder, which need not exist")
    from pytest_toolemu.authoring.drafts.draft_store import DraftStore
    from pytest_toolemu.authoring.drafts.review_queue import refuse_other_folder

    refuse_other_folder(DraftStore(drafts), suite)
    from pytest_toolemu.ui.application import UiServer
    from pytest_toolemu.ui.context import ProjectFolders
    from pytest_toolemu.ui.security import LOOPBACK, is_every_address

    server = UiServer(folder, host, port, read_only, ProjectFolders(labels, suite / "cases", drafts, suite))
    out.print(f"{folder}: {server.new_url()}")
    if host not in LOOPBACK:
        elsewhere = "; elsewhere, write this computer's address for the one in the URL" * is_every_address(host)
        err.print(
            f"note: {host} can be reached by others, and what they read is not encrypted; whoever opens the URL first "
            f"can {'read everything' if read_only else _FULL_ACCESS}{elsewhere}"
        )
    err.print("Ctrl-C ends it.")
    with tempfile.TemporaryDirectory(prefix="toolemu-ui-") as private:
        if not no_browser:
            _open_browser(redirect_page(Path(private), server.new_url()).as_uri())
        try:
            server.run()
        except KeyboardInterrupt:
            raise typer.Exit from None


def redirect_page(folder: Path, url: str) -> Path:
    """Write a page that opens the URL, and that only this account can read.

    Every account of the computer can read the command line of a browser, which would show the token.
    """
    path = folder / "open.html"
    path.touch(mode=0o600)
    path.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(url)}">\n')
    return path


def _open_browser(url: str) -> None:
    """Open the URL without waiting, because the server has to answer the browser."""
    threading.Thread(target=webbrowser.open, args=[url], daemon=True).start()
