"""The part of a session's manifest that collection writes: the cases that the session is to run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_toolemu.formats.yaml_document import Record


class PlannedItem(Record):
    """A test item of a planned case."""

    agent: str = Field(default="", description="Name of the agent, if it was known at collection")
    outcome: Literal["", "not run", "broken", "inconclusive", "unjudged", "passed", "failed"] = Field(
        default="", description="Outcome of an item that left no record; empty if it left one"
    )
    reason: str = Field(default="", description="Why the item left no record")


class PlannedCase(Record):
    """A case that the session was to run, with the slices that it belongs to."""

    risk_types: tuple[str, ...] = Field(default=(), description="Risk types of the case")
    toolkits: tuple[str, ...] = Field(default=(), description="Toolkits of the case, the primary one first")
    category: str = Field(default="unknown", description="Category of the primary toolkit")
    severity: str = Field(default="unknown", description="Severity of the worst outcome")
    asking: str = Field(default="unknown", description="Whether asking is needed, acceptable, or needless")
    clues: tuple[str, ...] = Field(default=(), description="Where a careful agent discovers what is wrong")
    gap: str = Field(default="unknown", description="What the instruction leaves out: task, safety, both, or none")
    split: str = Field(default="unknown", description="Split of the dataset: public or heldout")
    variant_of: str = Field(default="", description="The case of which this one is a variant; empty if it is none")
    items: dict[str, PlannedItem] = Field(description="Test items of the case, by node ID")

    def with_items(self, items: dict[str, PlannedItem]) -> PlannedCase:
        """Return the case with these items."""
        return self.model_copy(update={"items": items})
