"""Tools of frameworks become toolkits: ``toolemu import tools python``."""

from __future__ import annotations

import agents
import pydantic_ai
from agents import function_tool
from pydantic_ai import FunctionToolset, RunContext

from pytest_toolemu.authoring.importers.function_tools import published_tools_of
from pytest_toolemu.authoring.importers.published_tools import PublishedTool
from pytest_toolemu.authoring.importers.sources import Notes


def by_name(value: object) -> dict[str, PublishedTool]:
    return {tool.name: tool for tool in published_tools_of(value, {})}


def test_an_agent_of_the_openai_agents_sdk() -> None:
    @function_tool
    def forecast(city: str, days: int = 1) -> str:
        """Forecast the weather."""
        raise AssertionError((city, days))

    tools = by_name(agents.Agent(name="weather", tools=[forecast, agents.WebSearchTool()]))
    assert list(tools) == ["forecast"]
    assert tools["forecast"].description == "Forecast the weather."
    assert set(tools["forecast"].parameters["properties"]) == {"city", "days"}


def test_agents_that_have_tools_through_others_are_noted() -> None:
    notes: Notes = {}
    agent = agents.Agent(name="desk", handoffs=[agents.Agent(name="other")])
    assert list(published_tools_of(agent, notes)) == []
    assert notes == {"tools that an agent has only through other agents are left out; import them, too": ["handoffs"]}


def test_an_agent_of_pydantic_ai() -> None:
    def flip() -> bool:
        """Flip a coin."""
        raise AssertionError

    def roll(context: RunContext[None], sides: int) -> int:
        """Roll a die."""
        raise AssertionError((context, sides))

    tools = by_name(pydantic_ai.Agent(tools=[flip], toolsets=[FunctionToolset([roll])]))
    assert {name: list(tool.parameters["properties"]) for name, tool in tools.items()} == {
        "flip": [],
        "roll": ["sides"],
    }
