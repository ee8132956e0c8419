"""The vLLM servers of a session: in the process that leads it, before anybody needs them, until it has ended."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

from pytest_toolemu.models.vllm.fleet import ServerFleet
from pytest_toolemu.models.vllm.plan import plan_servers
from pytest_toolemu.plugin.session import ToolemuSession, relative

if TYPE_CHECKING:
    from pytest_toolemu.models.vllm.server import VllmServer

# Where the output is no terminal, a server that is starting has a line so often, in seconds.
_HEARTBEAT: Final = 30.0


def plan(session: ToolemuSession) -> ServerFleet | None:
    """The servers that the settings ask for, none of them started; None where somebody else serves, or nobody is asked.

    UsageError for what cannot be served as it is asked for.
    """
    settings = session.settings
    roles = session.roles  # reads .env, where the URL may be
    if settings.vllm_url or os.environ.get("VLLM_BASE_URL", "").strip() or settings.plays_only:
        return None
    asked = roles.asked(session.variants() or (None,))
    servers = plan_servers(asked, settings.vllm_args, settings.vllm_lora, settings.protocol == "tools")
    return ServerFleet(servers) if servers else None


def start(session: ToolemuSession) -> None:
    """Start them, tell how it goes on, and return when all answer. Once; UsageError where one does not start."""
    fleet = session.fleet
    if fleet is None or session.serves:
        return
    session.serves = True
    # Called after workers are down; should this process be killed before, each server's watchdog stops it.
    session.config.add_cleanup(fleet.stop)
    waiting = _Waiting(session.config.pluginmanager.getplugin("terminalreporter"))
    try:
        fleet.start(session.store.folder, session.settings.vllm_timeout, waiting)
    finally:
        waiting.clear()
    for server in fleet.servers:
        waiting.say(
            f"toolemu: {server.name} is up after {server.seconds:.0f} s at {server.url}, log {relative(server.log)}"
        )

    def on_death(server: VllmServer, reason: str) -> None:
        """Cases that ask it are told so, on any thread."""
        accounts = session.roles.accounts(f"{server.url}/v1")
        if session.carrier is not None:
            session.carrier.update(lambda coordinator: coordinator.requests.lose(accounts, reason))

    fleet.watch(on_death)


class _Waiting:
    """Shows what a server is doing while it starts: in place on a terminal, else a line now and then."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        self._told = time.monotonic()
        self._drawn = False

    def __call__(self, server: VllmServer, line: str) -> None:
        """Some more time has passed."""
        text = f"toolemu: starting {server.name}: {server.seconds:.0f} s: {line}"
        if self._reporter is None or self._reporter.verbosity < 0:
            return
        if self._reporter.isatty:
            width = self._reporter.config.get_terminal_writer().fullwidth - 1
            self._reporter.rewrite(text[:width], erase=True)
            self._drawn = True
        elif time.monotonic() - self._told >= _HEARTBEAT:
            self._told = time.monotonic()
            self.say(text)

    def say(self, text: str) -> None:
        """A line of its own."""
        if self._reporter is not None and self._reporter.verbosity >= 0:
            self._reporter.write_line(text)

    def clear(self) -> None:
        """Take away what was drawn."""
        if self._drawn:
            self._reporter.rewrite("", erase=True)
            self._drawn = False
