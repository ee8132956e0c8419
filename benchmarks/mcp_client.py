"""``python benchmarks/mcp_client.py CALLS URL...``: an agent that calls a tool at each URL, all URLs at the same time.

It imports only the standard library, so that it starts at once.
"""

from __future__ import annotations

import json
import sys
from http.client import HTTPConnection
from threading import Thread
from typing import Final
from urllib.parse import urlsplit

TOOL: Final = "Lockers_Open"
ARGUMENTS: Final = {"locker": "7", "note": "x" * 200}
HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def main(calls: int, urls: list[str]) -> None:
    """Make ``calls`` calls at each URL, one after the other."""
    threads = [Thread(target=_call, args=(url, calls)) for url in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _call(url: str, calls: int) -> None:
    address = urlsplit(url)
    connection = HTTPConnection(address.netloc)
    for number in range(calls):
        params = {"name": TOOL, "arguments": ARGUMENTS}
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        connection.request("POST", address.path, body, HEADERS)
        connection.getresponse().read()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
