"""A scripted model provider: the real SDKs send requests over a real socket, and a script determines the answers."""

from __future__ import annotations

from tests.loopback.records import Call, Fault, Message, Reply, Request, Script, Tool, Usage
from tests.loopback.scripts import by_role, conforming, faulty, replies, together
from tests.loopback.server import LoopbackServer, ScriptError

__all__ = [
    "Call",
    "Fault",
    "LoopbackServer",
    "Message",
    "Reply",
    "Request",
    "Script",
    "ScriptError",
    "Tool",
    "Usage",
    "by_role",
    "conforming",
    "faulty",
    "replies",
    "together",
]
