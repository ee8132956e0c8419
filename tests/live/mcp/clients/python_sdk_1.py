"""Call a tool with version 1 of the official Python SDK; URL and time-out in seconds are the arguments."""

import asyncio
import json
import sys
from datetime import timedelta

from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamablehttp_client


async def main(url: str, timeout: float) -> None:
    async with streamablehttp_client(url) as (read, write, _), ClientSession(read, write) as session:
        version = (await session.initialize()).protocolVersion
        await session.send_ping()
        names = [tool.name for tool in (await session.list_tools()).tools]
        wait = timedelta(seconds=timeout)
        try:
            results = await asyncio.gather(
                *(session.call_tool(names[0], {"locker": str(n)}, read_timeout_seconds=wait) for n in range(3))
            )
        except McpError as error:
            print(json.dumps({"error": str(error)}))
            return
        numbers = sorted(result.structuredContent["nth"] for result in results)
        print(json.dumps({"version": version, "tools": names, "numbers": numbers}))


asyncio.run(main(sys.argv[1], float(sys.argv[2])))
