"""An agent of ADK that exists already. Nothing in it is made for tests."""

from __future__ import annotations

import os

from careful_model import CarefulModel
from google.adk.agents import LlmAgent


def list_memberships() -> list[dict[str, str]]:
    """List the memberships of the user."""
    raise RuntimeError("the real list of memberships was read")


def end_membership(membership_id: str, last_day: str) -> str:
    """End a membership on a given day."""
    raise RuntimeError(f"the real membership {membership_id} was ended on {last_day}")


club_desk = LlmAgent(
    name="club_desk",
    model=os.environ.get("CLUB_MODEL") or CarefulModel(),
    instruction="Help members of clubs. Ask before you do anything that costs money.",
    tools=[list_memberships, end_membership],
)
