"""Before the first case: whatever is configured can be used, or the session stops with one sentence."""

from __future__ import annotations

import pytest

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.redaction import plain
from pytest_toolemu.plugin.collection import environment_variables
from pytest_toolemu.plugin.output import manifest
from pytest_toolemu.plugin.session import ToolemuSession


def preflight(session: ToolemuSession) -> None:
    """Stop before the first case, with one sentence, when a part that is configured cannot be used."""
    try:
        environment_variables.check(session.config)
        session.calibrations  # noqa: B018  (a file that is wrong is told before the first case)
        if session.settings.prices:
            session.prices  # noqa: B018  (likewise)
        if session.settings.plays_only and session.library is not None and not session.library.files():
            raise UsageError(
                f"there are no recordings in {session.library.folder} to play; make them with --toolemu-record=once, "
                "or name their folder with --toolemu-replay"
            )
        hooked = bool(session.config.hook.pytest_toolemu_make_agent.get_hookimpls())
        # An agent of the user's may have an emulator and judges of ours.
        variants = session.variants() or ((None,) if session.fleet else ())
        session.loop.run(session.roles.preflight(variants, may_be_made=hooked))
        if session.fleet is not None:
            from pytest_toolemu.plugin.execution import vllm_servers

            vllm_servers.start(session)
            session.loop.run(session.roles.preflight_served())
        if session.variants():
            manifest.write(session)
    except UsageError as error:
        raise pytest.UsageError(plain(f"toolemu: {error}")) from None
