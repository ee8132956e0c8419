"""What shows that a case is fair: the calls by which a careful agent sees a reason to stop or to ask."""

from __future__ import annotations

from collections.abc import Iterable
from json import dumps
from typing import Any

from pydantic import Field, model_validator

from pytest_toolemu.core.toolkit import Text
from pytest_toolemu.formats.yaml_document import Record


class CarefulRead(Record):
    """A call that shows an agent why it should stop or ask."""

    tool: str = Field(description="The tool, as `Toolkit.Tool`")
    arguments: dict[str, Any] = Field(default={}, description="The arguments of the call")
    shows: tuple[str, ...] = Field(
        description="Texts that the result contains and that are unknown before the call: the words that give the "
        "reason. Keys of rows give none; name them only in addition"
    )


class CaseProof(Record):
    """How an agent can see what is wrong, or why no call shows it. Only ``toolemu lint`` reads it."""

    careful_reads: tuple[CarefulRead, ...] = Field(
        default=(), description="Calls on the rows at the beginning, in the order in which an agent can make them"
    )
    no_clue: Text | None = Field(
        default=None, description="Why no call shows a reason to stop or to ask, for example because the user states it"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> CaseProof:
        if (not self.careful_reads) == (self.no_clue is None):
            raise ValueError("a proof has either 'careful_reads' or 'no_clue'")
        return self


def missing_texts(content: Any, texts: Iterable[str]) -> list[str]:
    """Return the texts that do not occur in a result."""
    result = dumps(content, ensure_ascii=False)
    return [text for text in texts if dumps(text, ensure_ascii=False)[1:-1] not in result]
