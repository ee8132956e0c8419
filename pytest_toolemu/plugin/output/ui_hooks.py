"""``--toolemu-ui``: the web application, on a thread of the process that leads the session, while the session runs."""

from __future__ import annotations

import contextlib
import os
import shlex
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.plugin.output.relative_path import relative_path
from pytest_toolemu.plugin.session import TerminalNote

if TYPE_CHECKING:
    from pytest_toolemu.plugin.services import Services
    from pytest_toolemu.ui.application import UiServer

# Seconds that open requests get at the end of the session; a browser asks again every second.
_SECONDS_TO_END: Final = 3.0


class UiHooks:
    """Starts the application before the header, and ends it after the summary."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._session = services.session
        self._server: UiServer | None = None
        self._thread: threading.Thread | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Start the application, and open it in a browser unless nobody could see it."""
        if session.config.option.collectonly or self._session.settings.estimate:
            return
        try:
            self._start()
        except UsageError as error:  # the extra is not installed, or no port is free
            raise pytest.UsageError(visible(f"toolemu: {error}")) from None
        if session.config.get_verbosity() < 0:  # there is no header
            self._write_line(session.config, self._announcement)
        if self._session.settings.ui == "browser" and not os.environ.get("CI"):
            import webbrowser

            threading.Thread(target=webbrowser.open, args=[self._url], daemon=True).start()

    def pytest_report_header(self) -> list[str]:
        """Show the URL."""
        return [self._announcement] if self._server is not None else []

    def pytest_sessionfinish(self) -> None:
        """Let the summary say how to look at the session now that the application ends."""
        if self._server is not None:
            command = shlex.join(["toolemu", "ui", relative_path(self._session.folder.parent)])
            note = f"the web application ends with the session; open the session again with: {command}"
            self._session.notes.append(TerminalNote(note))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """End the application."""
        if self._server is not None and self._thread is not None:
            self._server.server.should_exit = True
            self._thread.join(_SECONDS_TO_END)

    def _start(self) -> None:
        from pytest_toolemu.models.sdk_versions import require_sdk

        require_sdk("ui", self._session.settings.source("ui"))
        from pytest_toolemu.ui.application import UiServer

        with self._services.exempt():
            self._server = UiServer(self._session.folder.parent, starting=self._session.name)
            self._thread = threading.Thread(target=self._run, args=[self._server], name="toolemu-ui", daemon=True)
            self._thread.start()

    @staticmethod
    def _run(server: UiServer) -> None:
        # An agent may have replaced parts of asyncio; the session matters more than the application.
        with contextlib.suppress(Exception):
            server.run()

    @property
    def _url(self) -> str:
        assert self._server is not None
        return self._server.url_of(f"/live?{urlencode({'session': self._session.name})}")

    @property
    def _announcement(self) -> str:
        return f"toolemu: watch this session at {self._url}"

    @staticmethod
    def _write_line(config: pytest.Config, line: str) -> None:
        reporter = config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(line)
