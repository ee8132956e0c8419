"""A model of which only recorded replies are wanted: no SDK, no key, no network."""

from __future__ import annotations

from pytest_toolemu.core.messages import Message, Reply, ReplySchema, ToolSpec
from pytest_toolemu.errors import ModelError
from pytest_toolemu.models.spec import ModelSpec, Parameters, model_identity


class ReplayOnlyModel:
    """Says which model it stands for, and answers nothing itself."""

    def __init__(self, spec: ModelSpec, base_url: str | None, parameters: Parameters) -> None:
        self._spec = spec
        self.identity = model_identity(spec, base_url, parameters)

    def __repr__(self) -> str:
        return f"<Replayed {self._spec}>"

    async def complete(
        self,
        messages: tuple[Message, ...],  # noqa: ARG002
        *,
        tools: tuple[ToolSpec, ...] = (),  # noqa: ARG002
        schema: ReplySchema | None = None,  # noqa: ARG002
        seed: int | None = None,  # noqa: ARG002
    ) -> Reply:
        """ModelError: whoever asks here did not look into the recordings first."""
        raise ModelError(f"{self._spec.label} is only replayed; use --toolemu-record=new to ask it")

    async def served(self) -> list[str]:
        """Nothing is known to be served."""
        return []

    async def confirm(self, name: str) -> None:
        """Any name will do."""

    async def probe(self) -> None:
        """There is no endpoint."""

    async def aclose(self) -> None:
        """Nothing is open."""
