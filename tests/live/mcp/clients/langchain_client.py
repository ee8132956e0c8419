"""Call a tool of an MCP server three times with the adapters of LangChain."""

import asyncio
import json
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient


async def main(url: str) -> None:
    client = MultiServerMCPClient({"tools": {"transport": "streamable_http", "url": url}})
    tools = await client.get_tools()
    results = await asyncio.gather(*(tools[0].ainvoke({"locker": str(n)}) for n in range(3)))
    numbers = sorted(json.loads(result[0]["text"])["nth"] for result in results)
    print(json.dumps({"tools": [tool.name for tool in tools], "numbers": numbers}))


asyncio.run(main(sys.argv[1]))
