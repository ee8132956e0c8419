"""Where a case or toolkit comes from that a model drafted and a person accepted."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field

from pytest_toolemu.formats.identifiers import ContentHash
from pytest_toolemu.formats.yaml_document import Record


class Provenance(Record):
    """The model that drafted a file, and the person who accepted it; 'toolemu review' writes it."""

    model: Annotated[str, Field(min_length=1)] = Field(description="The model that wrote the draft, as PROVIDER:NAME")
    prompt_hash: ContentHash = Field(description="SHA-256 of the prompts")
    reviewer: Annotated[str, Field(min_length=1)] = Field(description="The person who accepted the draft")
    date: AwareDatetime = Field(description="When the draft was accepted, in quotes and with a UTC offset")
    override: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Why the person accepted the draft in spite of errors that the checks reported"
    )
