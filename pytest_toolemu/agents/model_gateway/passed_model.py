"""The model that an agent's program asks, as any other model of the session: with retries, limits, and a budget."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from pytest_toolemu.agents.model_gateway.exchange import Exchange
from pytest_toolemu.agents.model_gateway.passed_reply import EVENTS, error_of, reply_of
from pytest_toolemu.agents.model_gateway.passed_request import PassedCall
from pytest_toolemu.core.messages import ModelRequest, Reply
from pytest_toolemu.errors import ModelError
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.models.rate_limit_headers import quotas
from pytest_toolemu.scheduling.adaptive_limit import Quota

_SHOWN: Final = 600


class PassedModel:
    """Answers one request: the response goes to the program while it arrives."""

    def __init__(self, call: PassedCall, exchange: Exchange) -> None:
        self._exchange = exchange
        self._quotas: tuple[Quota | None, Quota | None] = (None, None)
        address = call.address
        self.rate_limit_key = address.rate_limit_key
        self.label = address.spec.label
        self.identity: dict[str, Any] = {
            "provider": address.spec.provider,
            "name": address.spec.name,
            "base_url": address.base_url,
        }

    async def complete(self, request: ModelRequest) -> Reply:
        """Send the program's request; ModelError if the provider fails."""
        del request  # it was derived from the program's request, which is sent as it is
        body, headers = await asyncio.to_thread(self._exchange.fetch, self.label)
        self._quotas = quotas(dict(headers.items()))
        content_type = headers.get("content-type", "")
        if error := error_of(body, content_type):
            what = "broke off its stream" if content_type.startswith(EVENTS) else "answered 200 with an error"
            raise ModelError(f"{self.label}: {self.identity['base_url']} {what}: {truncated(error, _SHOWN)}")
        request_id = headers.get("x-request-id") or headers.get("request-id")
        return reply_of(body, content_type, request_id)

    def quotas(self) -> tuple[Quota | None, Quota | None]:
        """Return the remaining requests and tokens from the headers of the response."""
        return self._quotas

    async def served(self) -> list[str]:
        """Return no names: the program chooses the model."""
        return []

    async def confirm(self, name: str) -> None:
        """Accept any name."""

    async def probe(self) -> None:
        """Do nothing: the program's requests show whether there is such a route."""

    async def aclose(self) -> None:
        """Do nothing: a connection ends with its request."""
