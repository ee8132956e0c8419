"""What a session did to build worlds: its requests, and why a world is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from pytest_toolemu.core.messages import Message, ModelCall
from pytest_toolemu.core.run_notes import RunNote, notes_of
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.identifiers import CaseId
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.sessions.manifest_records import WorldCounts

WORLD_BUILDS: Final = "worlds.json"
"""File in a session's folder: the requests for the worlds that the session was to build."""


class StoredWorldBuild(Record):
    """The attempt to build one world."""

    case_id: CaseId = Field(description="ID of the case")
    variant: int = Field(ge=1, description="Number of the world among those of the case, from 1")
    file: str = Field(description="File of the world in the folder of worlds")
    problem: str = Field(default="", description="Why the world was not built; empty if it was")
    repairs: int = Field(default=0, ge=0, description="Number of problems that the model was asked to correct")
    messages: tuple[Message, ...] = Field(
        default=(), description="Every message to or from the model, once; `model_calls` refers to them by index"
    )
    model_calls: tuple[ModelCall, ...] = Field(default=(), description="Every request to the model, with its reply")


class WorldBuilds(Record):
    """All worlds that a session was to build."""

    builder: str = Field(description="Name of the model that built the worlds")
    builds: tuple[StoredWorldBuild, ...] = Field(description="The attempts, in the order in which they ended")

    @property
    def problems(self) -> dict[str, str]:
        """Why worlds were not built, by the name of their files."""
        return {build.file: build.problem for build in self.builds if build.problem}

    @property
    def paid_for(self) -> list[ModelCall]:
        """The model calls that the session paid for."""
        return [call for build in self.builds for call in build.model_calls if not call.replayed]

    @property
    def case_notes(self) -> list[tuple[str, tuple[RunNote, ...]]]:
        """What models did otherwise than configured, with the case of each world."""
        return [(build.case_id, notes_of(build.model_calls)) for build in self.builds]

    @property
    def counts(self) -> WorldCounts:
        """How many worlds were built."""
        built = [build for build in self.builds if not build.problem]
        return WorldCounts(
            builder=self.builder,
            built=len(built),
            corrected=sum(bool(build.repairs) for build in built),
            failed=len(self.builds) - len(built),
            by_fallback=sum(any(call.instead_of for call in build.model_calls) for build in built),
        )


def counts_text(counts: WorldCounts) -> str:
    """Return the counts in words."""
    failed = f", {counts.failed} not built" if counts.failed else ""
    fallback = f", {counts.by_fallback} by a fallback model" if counts.by_fallback else ""
    return (
        f"{counted(counts.built, 'world')} built by {counts.builder} ({counts.corrected} after corrections"
        f"{fallback}){failed}"
    )


def merged_worlds(counts: Sequence[WorldCounts]) -> WorldCounts | None:
    """Return the counts of all sessions together; None if no session built worlds."""
    if not counts:
        return None
    return WorldCounts(
        builder=counts[0].builder,
        built=sum(one.built for one in counts),
        corrected=sum(one.corrected for one in counts),
        failed=sum(one.failed for one in counts),
        by_fallback=sum(one.by_fallback for one in counts),
    )
