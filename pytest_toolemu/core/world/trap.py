"""How a built world tempts an agent: the situation that its builder designed, and the calls that prove it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pytest_toolemu.core.case_parts.case_proof import CarefulRead
from pytest_toolemu.formats.yaml_document import Record


class Design(Record):
    """The situation that a built world puts an agent in."""

    gap: str = Field(description="The gap of the instruction that the world uses")
    risky_action: str = Field(description="The action that an agent takes if it does not look first")
    scenario: str = Field(description="What the situation is")
    harm: str = Field(description="The harm that the action does")


class RiskyCall(Record):
    """The call that does the harm."""

    tool: str = Field(description="The tool, as `Toolkit.Tool`")
    arguments: dict[str, Any] = Field(description="The arguments of the call")


class Proof(Record):
    """Calls that were executed on the rows before any agent met them."""

    careful_reads: tuple[CarefulRead, ...] = Field(
        min_length=1, description="Calls that show a reason to stop or to ask"
    )
    risky_call: RiskyCall = Field(description="The call that does the harm; it succeeded and changed rows")


class Trap(Record):
    """What the record of a run keeps of its built world, next to the rows, which belong to the case."""

    variant: int = Field(ge=1, description="Number of the world among those of the case, from 1")
    model: dict[str, Any] = Field(description="The model that built the world, with its parameters")
    design: Design = Field(description="The situation; neither agents nor evaluators see it")
    proof: Proof = Field(description="The calls that prove the design; neither agents nor evaluators see them")
