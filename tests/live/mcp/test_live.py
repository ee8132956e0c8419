"""MCP clients in environments of their own: their versions exclude each other, or they need Node.js and npm.

The first run installs them into ``.live/mcp`` (250 MB), where they are kept.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.agents.mcp import served
from pytest_toolemu.core.toolbox import Toolbox
from pytest_toolemu.errors import InconclusiveError
from tests.agents.scene import calls, toolbox
from tests.live.npm import FOLDER, installed
from tests.mcp.test_served_tools import HangingEmulator

CLIENTS = Path(__file__).parent / "clients"
PYTHON_PACKAGES = ("mcp>=1.30,<2", "pydantic-ai-slim[mcp]>=2.68,<3", "langchain-mcp-adapters>=0.3,<0.4")
NODE_PACKAGES = (
    "@modelcontextprotocol/sdk@^1.32",
    "@modelcontextprotocol/client@^2.4",
    "@modelcontextprotocol/inspector",
)
LONG, SHORT = 60.0, 1.0
"""Time-outs of clients in seconds."""

Command = list[str | Path]


@pytest.fixture(scope="session")
def python() -> Command:
    """Return the interpreter of an environment with version 1 of the Python SDK."""
    interpreter = FOLDER / "mcp" / "python" / "bin" / "python"
    if not interpreter.exists():
        subprocess.run([sys.executable, "-m", "venv", FOLDER / "mcp" / "python"], check=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PYTHON_PACKAGES]
    subprocess.run([interpreter, *install], check=True)
    return [interpreter]


@pytest.fixture(scope="session")
def node_folder() -> Path:
    """Return a folder in which the packages of npm are installed, with a copy of the clients."""
    folder = installed(FOLDER / "mcp" / "node", NODE_PACKAGES)
    for script in CLIENTS.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder


async def run(command: Command, **options: Any) -> str:
    """Return what a client prints. It must end with status 0."""
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, **options)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


def talk(command: Command, *arguments: str, **options: Any) -> tuple[Any, Toolbox]:
    """Run a client with the URL of a case; return the JSON that it prints, and the toolbox."""

    async def talking() -> tuple[Any, Toolbox]:
        box = toolbox(**options)
        async with served(box) as url:
            return json.loads(await run([*command, url, *arguments])), box

    return asyncio.run(talking())


@pytest.fixture(params=["python_sdk_1", "typescript_sdk_1", "typescript_sdk_2"])
def client(request: pytest.FixtureRequest) -> Command:
    """Return the command of a client, which takes the URL and a time-out in seconds."""
    if request.param.startswith("python"):
        return [*request.getfixturevalue("python"), CLIENTS / f"{request.param}.py"]
    return ["node", request.getfixturevalue("node_folder") / f"{request.param}.mjs"]


@pytest.mark.timeout(900)
def test_a_client_lists_and_calls_tools(client: Command) -> None:
    printed, box = talk(client, str(LONG))
    assert (printed["tools"], printed["numbers"]) == (["Lockers_Open"], [0, 1, 2])
    assert len(calls(box)) == 3


@pytest.mark.timeout(900)
def test_a_timeout_of_a_client_makes_the_case_inconclusive(client: Command) -> None:
    with pytest.raises(InconclusiveError, match="raise the timeout of its MCP client for tool calls"):
        talk(client, str(SHORT), emulator=HangingEmulator())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("framework", ["pydantic_ai", "langchain"])
def test_the_client_of_a_framework_calls_emulated_tools(framework: str, python: Command) -> None:
    printed, box = talk([*python, CLIENTS / f"{framework}_client.py"])
    assert printed == {"tools": ["Lockers_Open"], "numbers": [0, 1, 2]}
    assert len(calls(box)) == 3


@pytest.mark.timeout(900)
def test_the_inspector_shows_and_calls_tools(node_folder: Path) -> None:
    inspector: Command = [node_folder / "node_modules" / ".bin" / "mcp-inspector", "--cli"]

    async def inspecting() -> tuple[Any, Any]:
        async with served(toolbox()) as url:
            common = [*inspector, url, "--transport", "http", "--method"]
            tools = await run([*common, "tools/list"], cwd=node_folder)
            call = ["tools/call", "--tool-name", "Lockers_Open", "--tool-arg", "locker=7"]
            return json.loads(tools), json.loads(await run([*common, *call], cwd=node_folder))

    tools, result = asyncio.run(inspecting())
    assert [tool["name"] for tool in tools["tools"]] == ["Lockers_Open"]
    assert result["structuredContent"] == {"opened": True, "nth": 0}
