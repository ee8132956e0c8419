"""The vLLM servers of a session. The only process, or the xdist controller, starts them before the first case."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

from pytest_toolemu.components import Components
from pytest_toolemu.models.vllm_plan import plan_servers
from pytest_toolemu.models.vllm_servers import ServerFleet
from pytest_toolemu.plugin.collection.item_agents import agent_configs
from pytest_toolemu.plugin.session import relative_path
from pytest_toolemu.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pytest_toolemu.models.vllm_servers import VllmServer

# How often a server that is starting has a line of its own if the output is not a terminal, in seconds.
_HEARTBEAT: Final = 30.0


def plan(components: Components, settings: Settings) -> ServerFleet | None:
    """Return the servers that the settings require, not started; None if none is needed.

    Raise UsageError for a model that cannot be served as the settings require.
    """
    if settings.vllm_url or os.environ.get("VLLM_BASE_URL", "").strip() or settings.plays_only:
        return None
    models = components.models_in_use(agent_configs(settings) or (None,))
    servers = plan_servers(models, settings.vllm_args, settings.vllm_lora, settings.protocol == "tools")
    return ServerFleet(servers) if servers else None


def start_servers(fleet: ServerFleet, config: pytest.Config, folder: Path, timeout: float) -> None:
    """Start the servers, show their progress, and return when all answer. Raise UsageError if one does not start.

    Their logs go to ``folder``; ``timeout`` is in seconds.
    """
    # Called after the workers have ended. If this process is killed before, the servers' watchdogs stop them.
    config.add_cleanup(fleet.stop)
    display = _StartDisplay(config.pluginmanager.getplugin("terminalreporter"))
    try:
        fleet.start(folder, timeout, display)
    finally:
        display.clear()
    for server in fleet.servers:
        log = relative_path(server.log)
        display.write_line(f"toolemu: {server.name} is ready after {server.seconds:.0f} s at {server.url}, log {log}")


class _StartDisplay:
    """Shows what a server is doing while it starts: in place on a terminal, else a line now and then."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        self._last_line = time.monotonic()
        self._is_drawn = False

    def __call__(self, server: VllmServer, line: str) -> None:
        """Show the latest line of a server's log."""
        text = f"toolemu: starting {server.name}: {server.seconds:.0f} s: {line}"
        if self._reporter is None or self._reporter.verbosity < 0:
            return
        if self._reporter.isatty:
            width = self._reporter.config.get_terminal_writer().fullwidth - 1
            self._reporter.rewrite(text[:width], erase=True)
            self._is_drawn = True
        elif time.monotonic() - self._last_line >= _HEARTBEAT:
            self._last_line = time.monotonic()
            self.write_line(text)

    def write_line(self, text: str) -> None:
        """Write a line of its own."""
        if self._reporter is not None and self._reporter.verbosity >= 0:
            self._reporter.write_line(text)

    def clear(self) -> None:
        """Erase what was drawn."""
        if self._is_drawn:
            self._reporter.rewrite("", erase=True)
            self._is_drawn = False
