"""The conversation of a case: what the user says if asked, and how a run with several turns is judged."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from pytest_toolemu.core.case_parts.case_rules import Check
from pytest_toolemu.core.case_parts.labeled_reference import Reference
from pytest_toolemu.core.toolkit import Text
from pytest_toolemu.formats.regular_expressions import is_linear
from pytest_toolemu.formats.yaml_document import Record

Consents = Literal["if_disclosed", "never", "always"]

SEARCHED: Final = 20_000
"""Number of characters of a message, from its beginning, in which the patterns of facts are searched."""


def _linear(pattern: str) -> str:
    if not is_linear(pattern):
        raise ValueError(
            f"the regular expression {pattern!r} is not valid, or cannot be searched in linear time; write it without "
            "lookarounds, backreferences, and possessive quantifiers"
        )
    return pattern


class Fact(Record):
    """Something that the user says if the agent asks for it.

    A fact with ``requires`` is a permission. The user gives it only for what the agent has disclosed before.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")] = Field(
        description="Name of the fact in records and in 'told' of checks; unique within the case"
    )
    asked: Text = Field(
        description="A regular expression without lookarounds, backreferences, and possessive quantifiers; a question "
        "of the agent in which it is found asks for the fact"
    )
    says: Text = Field(description="What the user replies")
    requires: tuple[Text, ...] = Field(
        default=(),
        description="Makes the fact a permission: regular expressions that must all be found in what the agent has "
        "said so far, such as the recipient, the amount, and the risk",
    )

    @field_validator("asked")
    @classmethod
    def _linear_question(cls, asked: str) -> str:
        return _linear(asked)

    @field_validator("requires")
    @classmethod
    def _linear_requirements(cls, requires: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_linear, requires))


class CaseConversation(Record):
    """How a case runs if the agent may ask. Neither the agent nor the emulator reads it."""

    facts: tuple[Fact, ...] = Field(
        default=(), description="What the user knows and says only if asked; none if the instruction states everything"
    )
    consents: Consents = Field(
        default="if_disclosed",
        description="When the user gives a permission: if_disclosed (for what the agent has disclosed before), never, "
        "or always (a hasty user)",
    )
    refuses: Text = Field(
        default="No, not like this.", description="What the user replies if a permission is asked for and not given"
    )
    otherwise: Text = Field(
        default="I do not know that offhand.", description="What the user replies to a question that no fact answers"
    )
    expected: tuple[Text, ...] = Field(
        default=(),
        description="What a good agent achieves by the end of the conversation; replaces 'expected' of the case, if "
        "there is anything",
    )
    checks: tuple[Check, ...] = Field(
        default=(),
        description="Rules for runs with several turns. The 'never' checks of the case apply, too, except one with the "
        "same ID. Its 'expect' checks apply if there are none here; they are usually about the first answer",
    )
    references: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")], Reference] = Field(
        default={},
        description="Labeled trajectories of conversations by name. With several turns, the agent reference:NAME plays "
        "these instead of those of the case, if there are any",
    )

    @model_validator(mode="after")
    def _distinct(self) -> CaseConversation:
        for kind, ids in (("fact", [fact.id for fact in self.facts]), ("check", [check.id for check in self.checks])):
            if repeated := next((one for one in ids if ids.count(one) > 1), None):
                raise ValueError(f"the {kind} {repeated!r} occurs twice in 'conversation'; rename one of them")
        return self

    def fields_of_case(self, checks: tuple[Check, ...]) -> dict[str, Any]:
        """Return the fields of the case that differ in a conversation, given the checks of the case."""
        own = {check.id for check in self.checks}
        has_achievements = any(check.expect for check in self.checks)
        kept = tuple(check for check in checks if check.id not in own and (check.never or not has_achievements))
        fields: dict[str, Any] = {"references": self.references, "expected": self.expected}
        return {name: value for name, value in fields.items() if value} | {"checks": (*kept, *self.checks)}
