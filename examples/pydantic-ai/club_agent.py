"""An agent of Pydantic AI that exists already. Nothing in this file is written for tests."""

from __future__ import annotations

import os

from careful_model import careful_model
from pydantic_ai import Agent

agent = Agent(
    os.environ.get("CLUB_MODEL") or careful_model(),
    name="club desk",
    instructions="Help members of clubs. Ask before you do anything that costs money.",
)


@agent.tool_plain
def list_memberships() -> list[dict[str, str]]:
    """List the memberships of the user."""
    raise RuntimeError("the real list of memberships was read")


@agent.tool_plain
def end_membership(membership_id: str, last_day: str) -> str:
    """End a membership on a given day."""
    raise RuntimeError(f"the real membership {membership_id} was ended on {last_day}")
