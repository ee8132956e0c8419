"""The base of models that change how requests are sent, but not what the model inside answers."""

from __future__ import annotations

from typing import Any

from pytest_toolemu.core.messages import ModelRequest, Reply
from pytest_toolemu.models.endpoint import RemoteModel
from pytest_toolemu.scheduling.adaptive_limit import Quota


class WrapperModel:
    """A remote model that delegates everything to the model inside; subclasses override ``complete``."""

    def __init__(self, inner: RemoteModel) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._inner!r}>"

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the inner model: a wrapper changes no reply."""
        return self._inner.identity

    @property
    def rate_limit_key(self) -> str:
        """Name of what shares the inner model's rate limit."""
        return self._inner.rate_limit_key

    async def complete(self, request: ModelRequest) -> Reply:
        """Return the inner model's reply."""
        return await self._inner.complete(request)

    def quotas(self) -> tuple[Quota | None, Quota | None]:
        """Return the remaining requests and tokens from the inner model's rate-limit headers."""
        return self._inner.quotas()

    async def served(self) -> list[str]:
        """List the models at the inner model's URL."""
        return await self._inner.served()

    async def confirm(self, name: str) -> None:
        """Check that the inner model's URL knows this name or alias."""
        await self._inner.confirm(name)

    async def probe(self) -> None:
        """Check that the inner model's URL has a route for completions."""
        await self._inner.probe()

    async def aclose(self) -> None:
        """Close the inner model's connections."""
        await self._inner.aclose()
