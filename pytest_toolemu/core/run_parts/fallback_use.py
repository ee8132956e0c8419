"""Why the models of an ordered fallback ``A|B`` were asked, and which of them answered."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_toolemu.formats.yaml_document import Record

FallbackReason = Literal["refused", "invalid"]
"""The model refused, or its reply stayed invalid after all corrections."""


class PassedOverModel(Record):
    """A model of an ordered fallback that gave no usable reply, so that the next model was asked."""

    model: str = Field(description="The model as `provider:name`")
    reason: FallbackReason = Field(description="Whether the model refused, or its reply stayed invalid")
    problem: str = Field(description="The refusal, or what was wrong with the last reply")


class FallbackUse(Record):
    """An answer of a fallback model, with the models that were asked before it."""

    model: str = Field(description="Model that answered, as `provider:name`")
    passed_over: tuple[PassedOverModel, ...] = Field(description="Models that were asked before it, in their order")

    @property
    def has_refusal(self) -> bool:
        """Whether a model refused."""
        return any(each.reason == "refused" for each in self.passed_over)

    def __str__(self) -> str:
        reasons = "; ".join(f"{each.model}: {each.problem}" for each in self.passed_over)
        return f"answered by the fallback model {self.model}, because of {reasons}"
