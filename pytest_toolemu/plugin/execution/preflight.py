"""Checks before the first case: everything that is configured can be used, or the session stops with one sentence."""

from __future__ import annotations

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.visible_text import visible
from pytest_toolemu.plugin.collection import options
from pytest_toolemu.plugin.collection.item_agents import agent_configs
from pytest_toolemu.plugin.output.session_manifest import write_manifest
from pytest_toolemu.plugin.services import Services


def preflight(services: Services, *, builds_worlds: bool = False) -> None:
    """Raise pytest.UsageError before the first case if something that is configured cannot be used.

    ``builds_worlds``: the session will build worlds, so the model that builds them is checked as well.
    """
    try:
        _check_files(services)
        _check_models(services, builds_worlds)
        if agent_configs(services.session.settings):
            write_manifest(services)
    except UsageError as error:
        raise pytest.UsageError(visible(f"toolemu: {error}")) from None


def _check_files(services: Services) -> None:
    settings, files = services.session.settings, services.files
    options.check(services.session.config)
    if settings.calibration:
        files.calibrations  # noqa: B018 - reading it raises for a wrong file
    if settings.prices:
        files.prices  # noqa: B018 - likewise
    if settings.plays_only and files.cassettes is not None and not files.cassettes.files():
        raise UsageError(
            f"there are no cassettes in {files.cassettes.folder} to replay; record them with --toolemu-record=once, "
            "or name their folder with --toolemu-replay"
        )


def _check_models(services: Services, builds_worlds: bool) -> None:
    session = services.session
    components = services.models.open_components()
    if builds_worlds:
        components.builder(agent_configs(session.settings))
    has_agent_hook = bool(session.config.hook.pytest_toolemu_make_agent.get_hookimpls())
    # An agent that a hook or a fixture makes may still have a configured emulator and configured evaluators.
    configs = agent_configs(session.settings) or ((None,) if services.models.servers else ())
    services.case_loop.run(components.preflight(configs, may_be_made=has_agent_hook))
    if services.models.servers is not None:
        services.models.start_servers()
        services.case_loop.run(components.models.preflight(served=True))
