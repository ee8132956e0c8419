"""An agent of LangChain that exists already. The only addition is the parameter ``middleware``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from careful_model import CarefulModel
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import tool


@tool
def list_memberships() -> list[dict[str, str]]:
    """List the memberships of the user."""
    raise RuntimeError("the real list of memberships was read")


@tool
def end_membership(membership_id: str, last_day: str) -> str:
    """End a membership on a given day."""
    raise RuntimeError(f"the real membership {membership_id} was ended on {last_day}")


def club_desk(middleware: Sequence[AgentMiddleware[Any, Any]] = ()) -> Any:
    return create_agent(
        os.environ.get("CLUB_MODEL") or CarefulModel(),
        [list_memberships, end_membership],
        system_prompt="Help members of clubs. Ask before you do anything that costs money.",
        middleware=middleware,
    )
