"""An agent of the Claude Agent SDK that exists already. Nothing in it is made for tests."""

from __future__ import annotations

from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool


@tool("list_memberships", "List the memberships of the user.", {})
async def list_memberships(_: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError("the real list of memberships was read")


@tool("end_membership", "End a membership on a given day.", {"membership_id": str, "last_day": str})
async def end_membership(arguments: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError(f"the real membership {arguments['membership_id']} was ended")


options = ClaudeAgentOptions(
    model="claude-sonnet-5",
    system_prompt="Help members of clubs. Ask before you do anything that costs money.",
    mcp_servers={"club": create_sdk_mcp_server("club", tools=[list_memberships, end_membership])},
    allowed_tools=["mcp__club__list_memberships", "mcp__club__end_membership"],
)
