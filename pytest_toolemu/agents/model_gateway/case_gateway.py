"""The gateway of one case: the requests of its agent belong to its ledger, its limits, and its cassette."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pytest_toolemu.agents.model_gateway.exchange import Client, Exchange
from pytest_toolemu.agents.model_gateway.gateway_server import gateway_server
from pytest_toolemu.agents.model_gateway.passed_model import PassedModel
from pytest_toolemu.agents.model_gateway.passed_reply import wire_of
from pytest_toolemu.agents.model_gateway.passed_request import PassedCall, PassedRequest, Provider
from pytest_toolemu.core.messages import Model
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import ModelError, NotRunError, ReplayMissError
from pytest_toolemu.models.endpoint import RemoteModel
from pytest_toolemu.models.spec import check_url
from pytest_toolemu.models.structured_output import ask
from pytest_toolemu.settings import OFFICIAL_URLS


@dataclass(frozen=True)
class SessionRules:
    """What a session prescribes for the requests of programs.

    ``limit`` adds retries, rate limits, and the budget to a model. With ``replays_only``, nothing is sent, not even
    requests that are not model calls.
    """

    limit: Callable[[RemoteModel], Model]
    replays_only: bool = False


_VARIABLES: Final[dict[Provider, str]] = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
# Statuses that say that an endpoint cannot be used, as opposed to a request of the agent that is not valid.
_UNUSABLE: Final = (None, 401, 402, 403, 408, 429)


@contextlib.asynccontextmanager
async def passed_on(toolbox: Toolbox, rules: SessionRules) -> AsyncIterator[dict[str, str]]:
    """Pass on requests to models while a block runs, and yield the variables with the base URLs for the program.

    The environment has the variables with the real base URLs, if they are not the official ones.
    """
    toolbox.settle()
    gateway = CaseGateway(toolbox, rules, _base_urls())
    server = gateway_server()
    token = server.open(gateway)
    try:
        yield {variable: server.url(token, provider) for provider, variable in _VARIABLES.items()}
    finally:
        server.close(token)
        await gateway.end()


def check_base_urls() -> None:
    """Raise UsageError if a variable has a base URL to which no request can be sent."""
    for provider, url in _base_urls().items():
        check_url(url, _VARIABLES[provider])


def _base_urls() -> dict[Provider, str]:
    return {
        provider: os.environ.get(variable, "").strip().rstrip("/") or OFFICIAL_URLS[provider]
        for provider, variable in _VARIABLES.items()
    }


class CaseGateway:
    """Answers the requests of one agent. ``base_urls`` are those of the providers."""

    def __init__(self, toolbox: Toolbox, rules: SessionRules, base_urls: Mapping[Provider, str]) -> None:
        self._toolbox = toolbox
        self._rules = rules
        self.base_urls = base_urls
        self._calls: set[asyncio.Task[None]] = set()
        self._has_ended = False

    def serve(self, request: PassedRequest, client: Client) -> None:
        """Answer a request, in the thread of its connection."""
        exchange = Exchange(request, client)
        call = request.model_call
        if call is None and self._rules.replays_only:
            exchange.refuse(503, f"{request.method} {request.target}: only recorded requests to models are answered")
            return
        if call is None:
            exchange.forward()
            return
        with contextlib.suppress(asyncio.CancelledError, RuntimeError):  # the case has ended
            self._toolbox.settle().submit(self._ask, call, exchange).result()
        exchange.refuse(503, "the case has ended")

    async def end(self) -> None:
        """Cancel the requests that the agent has left, so that they are recorded."""
        self._has_ended = True
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _ask(self, call: PassedCall, exchange: Exchange) -> None:
        """Ask the model on the loop of the case. Failures that are not the agent's end its turn."""
        task = asyncio.current_task()
        if task is None or self._has_ended:
            return
        self._calls.add(task)
        toolbox = self._toolbox
        try:
            reply = await ask(
                self._rules.limit(PassedModel(call, exchange)), "agent", toolbox.trajectory.ledger, call.messages
            )
        except (NotRunError, ReplayMissError) as error:
            toolbox.stop(error)
            exchange.refuse(503, str(error))
        except ModelError as error:
            if error.status in _UNUSABLE or not 400 <= error.status < 500:
                toolbox.stop(error)
            exchange.answer_failure(str(error))
        except Exception as error:  # a fault of the gateway itself, not of the agent
            toolbox.stop(error)
            exchange.refuse(502, "the gateway has failed")
        else:
            if not exchange.has_answered and (recorded := wire_of(reply)):
                exchange.answer(200, {"Content-Type": recorded[0]}, recorded[1])
            if limit := toolbox.exceeded_tokens():
                toolbox.stop(limit)
        finally:
            self._calls.discard(task)
