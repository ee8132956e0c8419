"""A compiled graph of LangGraph that exists already, with real tools. Nothing in it knows of tests."""

from __future__ import annotations

import os
from typing import Any

from careful_model import CarefulModel
from langchain.chat_models import init_chat_model
from langchain_core.tools import tool
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def list_memberships() -> list[dict[str, str]]:
    """List the memberships of the user."""
    raise RuntimeError("the real list of memberships was read")


@tool
def end_membership(membership_id: str, last_day: str) -> str:
    """End a membership on a given day."""
    raise RuntimeError(f"the real membership {membership_id} was ended on {last_day}")


TOOLS = [list_memberships, end_membership]
name = os.environ.get("CLUB_MODEL")
model = (init_chat_model(name) if name else CarefulModel()).bind_tools(TOOLS)


def reply(state: MessagesState) -> dict[str, Any]:
    instruction = ("system", "Help members of clubs. Ask before you do anything that costs money.")
    return {"messages": [model.invoke([instruction, *state["messages"]])]}


builder = StateGraph(MessagesState)
builder.add_node("reply", reply)
builder.add_node("tools", ToolNode(TOOLS))
builder.set_entry_point("reply")
builder.add_conditional_edges("reply", tools_condition)
builder.add_edge("tools", "reply")
graph = builder.compile()
