"""``toolemu connect``: the tools of a served case for MCP clients that only start programs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def connect(url: Annotated[str, typer.Argument(help="URL of a case, as 'toolemu serve' prints it.")]) -> None:
    """Connect an MCP client that starts its servers as programs (stdio) with a case that is being served."""
    from pytest_toolemu.agents.mcp.stdio_bridge import StdioBridge

    bridge = StdioBridge(url, sys.stdout.buffer)
    bridge.check()
    bridge.run(sys.stdin.buffer)
