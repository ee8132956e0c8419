"""Run an agent of Pydantic AI whose tools come from an MCP server; its model calls every tool once."""

import asyncio
import json
import sys

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    names = [tool.name for tool in info.function_tools]
    if not returned:
        return ModelResponse(parts=[ToolCallPart(names[0], {"locker": str(n)}) for n in range(3)])
    numbers = sorted(part.content["nth"] for part in returned)
    return ModelResponse(parts=[TextPart(json.dumps({"tools": names, "numbers": numbers}))])


async def main(url: str) -> None:
    agent = Agent(FunctionModel(reply), toolsets=[MCPToolset(url)])
    async with agent:
        print((await agent.run("Open my lockers.")).output)


asyncio.run(main(sys.argv[1]))
