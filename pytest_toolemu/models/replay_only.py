"""A model whose replies all come from cassettes: no SDK, no key, no network."""

from __future__ import annotations

from pytest_toolemu.core.messages import ModelRequest, Reply
from pytest_toolemu.errors import ModelError
from pytest_toolemu.models.spec import ModelSpec, Parameters, model_identity


class ReplayOnlyModel:
    """Names the model it stands for and cannot answer by itself."""

    def __init__(self, spec: ModelSpec, base_url: str | None, parameters: Parameters) -> None:
        self._spec = spec
        self.identity = model_identity(spec, base_url, parameters)

    def __repr__(self) -> str:
        return f"<Replayed {self._spec}>"

    async def complete(self, request: ModelRequest) -> Reply:  # noqa: ARG002  (part of the protocol)
        """Raise ModelError: only the recorder can answer, before the request gets here."""
        raise ModelError(f"{self._spec.label} is replayed, and cannot be called; use --toolemu-record=new to call it")

    async def served(self) -> list[str]:
        """Return no names: it is unknown what the endpoint serves."""
        return []

    async def confirm(self, name: str) -> None:
        """Accept any name."""

    async def probe(self) -> None:
        """Do nothing: there is no endpoint."""

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""
