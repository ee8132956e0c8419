"""What agent and user say to each other in a run with several turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from pytest_toolemu.formats.yaml_document import Record

ReplyKind = Literal["answer", "consent", "refuse", "unknown", "over"]
"""What the user did: state facts, give a permission, refuse one, know nothing, or end the conversation."""


class UserReply(Record):
    """The user's reaction to what the agent said. The text is empty if the conversation is over."""

    kind: ReplyKind
    text: str = ""
    facts: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()


class Utterance(Record):
    """Something that the agent said to the user, or the user's reply."""

    step: int = Field(description="Number of tool calls before it")
    by: Literal["agent", "user"] = Field(description="Who said it")
    text: str = Field(description="What was said")
    kind: ReplyKind | None = Field(
        default=None,
        description="What the user did: state facts, give or refuse a permission, or not know; null for the agent",
    )
    facts: tuple[str, ...] = Field(default=(), description="IDs of the facts of the case that the user stated")
    repairs: tuple[str, ...] = Field(
        default=(), description="Problems of rejected replies, which the model of the user was asked to correct"
    )


def told_before(dialogue: Sequence[Utterance], facts: Sequence[str]) -> int | None:
    """Return the number of calls before the user had stated all of these facts; None if some were never stated."""
    missing = set(facts)
    for utterance in dialogue:
        missing -= set(utterance.facts)
        if not missing:
            return utterance.step
    return None


def said_lines(dialogue: Sequence[Utterance], step: int) -> Iterator[dict[str, str]]:
    """Yield what was said directly before a call, as models read it; after the last call if there is no such call."""
    for utterance in dialogue:
        if utterance.step == step:
            yield {"said": utterance.text, "by": utterance.by}


def words_of_agent(dialogue: Sequence[Utterance]) -> str:
    """Return everything that the agent has said to the user so far."""
    return "\n".join(utterance.text for utterance in dialogue if utterance.by == "agent")
