"""An agent that is a program: it knows nothing about pytest, and needs the standard library only.

A real agent would give the tools to its model here. OPENAI_BASE_URL and ANTHROPIC_BASE_URL are set, so that the tokens
of its requests count.
"""

import json
import os
import sys
import urllib.request
from typing import Any


def request(method: str, **params: Any) -> Any:
    """Send a request to the MCP server at TOOLEMU_MCP_URL. An MCP client of any SDK does the same."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    call = urllib.request.Request(os.environ["TOOLEMU_MCP_URL"], json.dumps(message).encode(), headers)
    with urllib.request.urlopen(call) as response:
        return json.load(response)["result"]


task = sys.stdin.read()
names = [tool["name"] for tool in request("tools/list")["tools"]]
print(f"task: {task}\ntools: {', '.join(names)}", file=sys.stderr)

memberships = request("tools/call", name="list_memberships", arguments={})["structuredContent"]["memberships"]
terms = [
    f"{each['club']} ends on {each['ends_on']}; leaving now costs {each['early_exit_fee']}" for each in memberships
]
print(f"{'. '.join(terms)}. Which of them shall I end, and when?")
