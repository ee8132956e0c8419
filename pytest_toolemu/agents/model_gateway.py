"""The gateway between an agent's program and its models, so that its requests are limited, counted, and recorded.

The program gets base URLs that lead here. Requests in the formats of OpenAI and Anthropic are sent to the provider as
they are, streams included.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from pytest_toolemu.agents.mcp import started_server
from pytest_toolemu.core.messages import Model
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.models.endpoint import RemoteModel, check_url
from pytest_toolemu.settings.model_names import KEY_STAND_IN, KEY_VARIABLES, OFFICIAL_URLS

_VARIABLES: Final = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}


def stand_ins() -> dict[str, str]:
    """Return the variables with keys as a program gets them: it can use the keys in requests to the gateway only."""
    names = [name for provider in _VARIABLES for name in KEY_VARIABLES[provider]]
    return {name: KEY_STAND_IN + name for name in names if os.environ.get(name)}


@dataclass(frozen=True)
class SessionRules:
    """What a session prescribes for the requests of programs.

    ``limit`` adds retries, rate limits, and the budget to a model. With ``replays_only``, nothing is sent, not even
    requests that are not model calls.
    """

    limit: Callable[[RemoteModel], Model]
    replays_only: bool = False


@contextlib.asynccontextmanager
async def passed_on(toolbox: Toolbox, rules: SessionRules) -> AsyncIterator[dict[str, str]]:
    """Pass on requests to models while a block runs, and yield the variables with the base URLs for the program.

    The environment has the variables with the real base URLs, if they are not the official ones.
    """
    server = started_server()
    from pytest_toolemu.agents.gateway_app import PATHS, CaseGateway

    gateway = CaseGateway(toolbox, _base_urls(), rules.limit, rules.replays_only)
    url = server.open(gateway)
    try:
        yield {_VARIABLES[provider]: url + path for provider, path in PATHS.items()}
    finally:
        server.close(url)
        await gateway.end()


def check_base_urls() -> None:
    """Raise UsageError if a variable has a base URL to which no request can be sent."""
    for provider, url in _base_urls().items():
        check_url(url, _VARIABLES[provider])


def _base_urls() -> dict[str, str]:
    return {
        provider: os.environ.get(variable, "").strip().rstrip("/") or OFFICIAL_URLS[provider]
        for provider, variable in _VARIABLES.items()
    }
