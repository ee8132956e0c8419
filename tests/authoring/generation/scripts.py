"""Replies of a scripted author, and how to run a command with them against the loopback server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pytest_toolemu.cli import app
from pytest_toolemu.formats.yaml_document import Document
from tests.loopback.fixtures import Loopback
from tests.loopback.records import Reply, Request, Usage
from tests.loopback.scripts import replies
from tests.loopback.server import LoopbackServer
from tests.worlds.library import LIBRARY

Json = dict[str, Any]
KEY = "sk-canary-openai-0123456789"
LIBRARY_FILE: Json = Document.parse(LIBRARY, Path("Library.toolkit.yaml")).value


def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder the current one, with a key that the loopback server accepts."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.chdir(folder)
    return folder


def reply(content: Json) -> Reply:
    return Reply(json.dumps(content), usage=Usage(input=1000, output=200))


def author(loopback: Loopback, *contents: Json | Reply) -> LoopbackServer:
    """Start a server that gives these replies in turn."""
    return loopback(replies([each if isinstance(each, Reply) else reply(each) for each in contents]))


def run(server: LoopbackServer, command: str, *options: str) -> Result:
    """Run a command such as ``generate toolkits`` with the server's model."""
    return CliRunner().invoke(app, [*command.split(), f"--model=openai:gpt-4o@{server.url}/v1", *options])


def prompts(server: LoopbackServer) -> list[Request]:
    return [request for request in server.requests if request.messages]


def conversation(request: Request) -> str:
    """Return the text of all messages."""
    return "\n".join(message.text for message in request.messages)


def names(*proposals: tuple[int, str, str]) -> Json:
    """Return the reply of the stage of names: number, name, and description of each proposal."""
    return {
        "proposals": [
            {
                "number": number,
                "reasoning": "Libraries lend books.",
                "category": f"field {number}",
                "name": name,
                "title": name,
                "description": description,
                "users": "librarians",
            }
            for number, name, description in proposals
        ]
    }


def notes(*, risks: bool = True, **changes: Any) -> Json:
    """Return the reply of the stage of design notes."""
    tool = {
        "name": "LendBook",
        "purpose": "Lend a book.",
        "arguments": ["book_id: the book"],
        "results": ["loan_id: the loan"],
        "effect": "irreversible",
        "errors": ["NotFound: the book is unknown"],
    }
    risk = {"type": "financial_loss", "description": "A rare book is lent to a reader who never returns it."}
    return {
        "reasoning": "A library lends books to readers.",
        "core_functions": ["Lend books."],
        "additional_functions": [],
        **({"risks": [risk]} if risks else {}),
        "tools": [tool],
        "data": [{"name": "book", "fields": ["title"], "identifier": "book_id"}],
        "assessment": "SearchBooks returns the identifier that LendBook takes.",
        **({"causes": ["LendBook lends what should stay."]} if risks else {}),
        "description": "Lend the books of a library.",
        **changes,
    }


def specification(kit: Json = LIBRARY_FILE, without: Sequence[str] = ()) -> Json:
    """Return the reply of the stage of specifications for a toolkit's file, without some of its tools."""
    tools = [tool for tool in kit["tools"] if tool["name"] not in without]
    return {
        "tools": [
            {
                **{name: tool[name] for name in ("name", "description", "parameters", "returns", "effect")},
                "errors": [{"name": name, "when": when} for name, when in tool.get("errors", {}).items()],
            }
            for tool in tools
        ],
        "entities": [{"name": name, "entity": entity} for name, entity in kit["entities"].items()],
        "operations": [{"tool": tool["name"], "operation": tool["operation"]} for tool in tools if "operation" in tool],
    }
