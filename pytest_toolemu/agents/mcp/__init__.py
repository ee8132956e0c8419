"""Serve the emulated tools of a case over the Model Context Protocol (MCP), for agents that are programs or services.

The protocol is implemented here and not taken from the ``mcp`` package, because the frameworks of users require
versions of that package that exclude each other.
"""

from pytest_toolemu.agents.mcp.served_tools import served

__all__ = ["served"]
