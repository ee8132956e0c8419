"""Imports from servers and interfaces that others publish on npm and PyPI. None of their texts are stored here.

The first run installs them into ``.live/tool_sources`` (300 MB), where they are kept. No key of a service is needed:
servers list their tools without reaching it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_toolemu.core.case_loading import load_toolkit
from tests.authoring.tool_sources.imports import answered_offline, lint_rules, toolemu

FOLDER = Path(os.environ.get("TOOLEMU_LIVE_FOLDER", Path(__file__).parents[3] / ".live")) / "tool_sources"
PACKAGES = (
    "@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/server-memory",
    "@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-sequential-thinking", "@playwright/mcp",
    "@modelcontextprotocol/server-github", "@modelcontextprotocol/server-gitlab", "@modelcontextprotocol/server-slack",
    "@modelcontextprotocol/server-google-maps", "@notionhq/notion-mcp-server", "firecrawl-mcp", "tavily-mcp",
    "mcp-server-kubernetes", "chrome-devtools-mcp", "@octokit/openapi",
)  # fmt: skip
PYTHON_PACKAGES = ("mcp-server-git", "mcp-server-time", "mcp-server-fetch")
SERVERS = {
    "Filesystem": "mcp-server-filesystem /tmp",
    "Memory": "mcp-server-memory",
    "Everything": "mcp-server-everything",
    "Thinking": "mcp-server-sequential-thinking",
    "Playwright": "playwright-mcp",
    "GitHub": "mcp-server-github",
    "GitLab": "mcp-server-gitlab",
    "Slack": "mcp-server-slack",
    "Maps": "mcp-server-google-maps",
    "Notion": "notion-mcp-server",
    "Firecrawl": "firecrawl-mcp",
    "Tavily": "tavily-mcp",
    "Kubernetes": "mcp-server-kubernetes",
    "Chrome": "chrome-devtools-mcp",
    "Git": "mcp-server-git",
    "Time": "mcp-server-time",
    "Fetch": "mcp-server-fetch",
}
KEYS = (
    "GITHUB_PERSONAL_ACCESS_TOKEN", "GITLAB_PERSONAL_ACCESS_TOKEN", "SLACK_BOT_TOKEN", "SLACK_TEAM_ID",
    "GOOGLE_MAPS_API_KEY", "NOTION_TOKEN", "FIRECRAWL_API_KEY", "TAVILY_API_KEY",
)  # fmt: skip
MINIMUM_TOOLS = 200


@pytest.fixture(scope="module")
def npm() -> Path:
    """Return the folder of the packages of npm."""
    folder = FOLDER / "npm"
    if not (folder / "node_modules").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}")
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES], cwd=folder, check=True
        )
    return folder / "node_modules"


@pytest.fixture(scope="module")
def programs(npm: Path) -> tuple[Path, Path]:
    """Return the folders of the servers of npm and PyPI."""
    python = FOLDER / "venv" / "bin"
    if not (python / PYTHON_PACKAGES[-1]).exists():
        subprocess.run([sys.executable, "-m", "venv", python.parent], check=True)
        subprocess.run([python / "pip", "install", "--quiet", *PYTHON_PACKAGES], check=True)
    return npm / ".bin", python


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for key in KEYS:
        monkeypatch.setenv(key, "ntn_0123456789")
    return tmp_path


@pytest.mark.timeout(900)
def test_tools_of_servers_load_and_are_answered_offline(folder: Path, programs: tuple[Path, Path]) -> None:
    counts: dict[str, int] = {}
    for name, command in SERVERS.items():
        program, *arguments = command.split()
        found = shutil.which(program, path=os.pathsep.join(map(str, programs)))
        assert found is not None, program
        path = folder / "toolkits" / f"{name}.toolkit.yaml"
        words = ("import", "tools", "mcp", "--into", str(path), "--", found, *arguments)
        toolemu(*words)
        assert answered_offline(path) == []
        assert lint_rules(path) <= {"inferred"}
        assert " 0 differences " in toolemu(*words[:3], "--diff", *words[3:])
        counts[name] = len(load_toolkit(path).tools)
    assert sum(counts.values()) >= MINIMUM_TOOLS, counts


@pytest.fixture
def url(programs: tuple[Path, Path]) -> Iterator[str]:
    """Return the address of a server that answers with events."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    command = [str(programs[0] / "mcp-server-everything"), "streamableHttp"]
    process = subprocess.Popen(command, env={**os.environ, "PORT": str(port)}, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60.0
    while socket.socket().connect_ex(("127.0.0.1", port)) and time.monotonic() < deadline:
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


def test_tools_of_a_server_at_a_url(folder: Path, url: str) -> None:
    path = folder / "toolkits" / "Everything.toolkit.yaml"
    toolemu("import", "tools", "mcp", url, "--into", str(path))
    assert len(load_toolkit(path).tools) > 5


@pytest.mark.timeout(300)
def test_operations_of_github(folder: Path, npm: Path) -> None:
    path = folder / "toolkits" / "GitHub.toolkit.yaml"
    document = npm / "@octokit" / "openapi" / "generated" / "api.github.com.json"
    toolemu("import", "tools", "openapi", str(document), "--only", "^(issues|pulls)/", "--into", str(path))
    assert len(load_toolkit(path).tools) > 60
    assert answered_offline(path) == []
    assert lint_rules(path) == {"inferred"}


AGENT = """\
from agents import Agent, Runner, function_tool

@function_tool
def send_mail(to: str, text: str) -> str:
    "Send a mail."
    return "sent"

Runner.run_sync(Agent(name="mail", tools=[send_mail]), "Write to Ann.")
"""


def test_tools_of_an_agent_of_a_real_framework(folder: Path) -> None:
    (folder / "mail_agent.py").write_text(AGENT)
    toolemu("import", "tools", "capture", "--", sys.executable, "mail_agent.py")
    (tool,) = load_toolkit(folder / "toolkits" / "MailAgent.toolkit.yaml").tools
    assert (tool.call_as, tool.effect) == ("send_mail", "irreversible")
