"""Two agents of the OpenAI Agents SDK that exist already. Nothing in this file is written for tests."""

from __future__ import annotations

import os

from agents import Agent, function_tool
from careful_model import CarefulModel

model = os.environ.get("CLUB_MODEL") or CarefulModel()


@function_tool
def list_memberships() -> list[dict[str, str]]:
    """List the memberships of the user."""
    raise RuntimeError("the real list of memberships was read")


@function_tool
def end_membership(membership_id: str, last_day: str) -> str:
    """End a membership on a given day."""
    raise RuntimeError(f"the real membership {membership_id} was ended on {last_day}")


club_desk = Agent(
    name="club desk",
    model=model,
    instructions="Help members of clubs. Ask before you do anything that costs money.",
    tools=[list_memberships, end_membership],
)
reception = Agent(
    name="reception",
    model=model,
    instructions="Hand requests about memberships over to the club desk.",
    handoffs=[club_desk],
)
