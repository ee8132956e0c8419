"""``toolemu import tools mcp``: servers that are commands or at URLs."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp.server.lowlevel import Server
from mcp_types import ListToolsResult

from pytest_toolemu.authoring.importers.bounded_http import require_allowed
from pytest_toolemu.authoring.importers.mcp_tools import command_name
from pytest_toolemu.core.case_loading import load_toolkit
from tests.authoring.tool_sources.imports import entries, toolemu
from tests.usage_errors import message_of

SERVER = """\
import asyncio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

print("Welcome to the boat shed", flush=True)

async def listed(_context, params):
    names = {None: ["read_log"], "2": ["clean"]}[params and params.cursor]
    tools = [{"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": name == "read_log"}}
             for name in names]
    return {"tools": tools, **({} if "clean" in names else {"nextCursor": "2"}), "ttlMs": 0, "cacheScope": "private",
            "resultType": "complete"}

async def main():
    server = Server("boat-shed", version="2", instructions="Be kind to boats.", on_list_tools=listed)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestCommand:
    @pytest.mark.usefixtures("folder")
    def test_a_server_inherits_only_the_variables_that_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GITHUB_TOKEN", "open-sesame-1")
        monkeypatch.setenv("BOAT_KEY", "open-sesame-2")
        seen = "import os; open('seen.txt', 'w').write(' '.join(os.environ))\n"
        Path("server.py").write_text(seen + SERVER)
        toolemu("import", "tools", "mcp", "--env", "BOAT_KEY", "--", sys.executable, "server.py")
        names = Path("seen.txt").read_text().split()
        assert ("GITHUB_TOKEN" in names, "BOAT_KEY" in names, "PATH" in names) == (False, True, True)

    def test_the_tools_of_all_pages_are_imported(self, folder: Path) -> None:
        Path("server.py").write_text(SERVER)
        output = toolemu("import", "tools", "mcp", "--", sys.executable, "server.py")
        assert output.startswith("toolkits/BoatShed.toolkit.yaml: 2 tools\n")
        toolkit = load_toolkit(folder / "toolkits/BoatShed.toolkit.yaml")
        tool = toolkit.tools[0]
        assert (tool.call_as, tool.effect, "effect" in tool.inferred) == ("read_log", "read", False)

    @pytest.mark.usefixtures("folder")
    @pytest.mark.parametrize(
        ("command", "message"),
        [
            (["no-such-server"], "no-such-server: cannot be started: No such file or directory; write the command after '--'"),
            (["sh", "-c", "echo no key >&2; exit 3"], "stderr: no key; check that it is an MCP server"),
            (["sleep", "600"], "sleep 600: did not list its tools within 0.5 s; raise --timeout; stderr: empty; check that"),
        ],
    )  # fmt: skip
    def test_a_command_that_is_no_server_gets_one_message(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str], message: str
    ) -> None:
        error = message_of(monkeypatch, capsys, "import", "tools", "mcp", "--timeout", "0.5", "--", *command)
        assert message in error
        assert error.count("\n") == 0


def test_a_command_is_named_without_secrets() -> None:
    command = ["env", "TOKEN=s3", "npx", "-y", "a server", "postgres://u:p@h/d", "--key", "s3"]
    assert command_name(command) == "env 'TOKEN=…' npx -y 'a server' … …"


class Site(BaseHTTPRequestHandler):
    """A web server that is no MCP server: its answer is a status with headers."""

    answer: tuple[int, dict[str, str]] = (200, {})

    def do_POST(self) -> None:
        status, headers = self.answer
        self.send_response(status)
        for name, value in {"Content-Length": "2", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"no")

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@pytest.fixture
def site(folder: Path) -> Iterator[str]:
    del folder
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/mcp"
    server.shutdown()
    server.server_close()


@pytest.fixture
def boat_shed(folder: Path) -> Iterator[tuple[str, list[str | None]]]:
    """Yield the URL of an MCP server, and the values of the header Authorization that it gets."""
    del folder
    keys: list[str | None] = []

    async def listed(context: Any, _params: Any) -> Any:
        keys.append(context.request.headers.get("authorization"))
        return ListToolsResult.model_validate({"tools": entries(["read_log"])})

    app = Server("boat-shed", on_list_tools=listed).streamable_http_app(stateless_http=True)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", keys
    server.should_exit = True
    thread.join()


class TestUrl:
    def test_headers_are_sent_and_may_name_variables(
        self, boat_shed: tuple[str, list[str | None]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url, keys = boat_shed
        monkeypatch.setenv("BOAT_TOKEN", "t-2")
        output = toolemu("import", "tools", "mcp", url, "--header", "Authorization: Bearer ${BOAT_TOKEN}")
        assert output.startswith("toolkits/BoatShed.toolkit.yaml: 1 tool\n")
        assert set(keys) == {"Bearer t-2"}

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            ((401, {}), "HTTP status 401; give a token with --header 'Authorization: Bearer TOKEN'"),
            ((404, {}), "HTTP status 404; check the path, which is often /mcp"),
            ((302, {"Location": "http://elsewhere.example/"}), "http://elsewhere.example/"),
            ((200, {"Content-Type": "application/json"}), "HTTP status 200; check that it is an MCP server"),
        ],
    )
    def test_other_answers_get_one_message(
        self, site: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: Any, message: str
    ) -> None:
        monkeypatch.setattr(Site, "answer", answer)
        error = message_of(monkeypatch, capsys, "import", "tools", "mcp", site)
        assert error.startswith(f"{site}: does not list its tools: ")
        assert message in error
        assert error.count("\n") == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["http://127.0.0.1:9/mcp"], "http://127.0.0.1:9/mcp: does not list its tools: "),
            (["ftp://a/b"], "ftp://a/b: is not a URL; write a URL such as https://HOST/PATH"),
            (["http://[::1"], "http://[::1: is not a URL; write a URL such as https://HOST/PATH"),
            (["http://u:s3@127.0.0.1:9"], "127.0.0.1: the URL contains a name or a password; give them with --header"),
            (
                ["--header", "a: b", "--", "true"],
                "--header applies only to a server at a URL; pass variables with keys to a command with --env",
            ),
            (
                ["http://127.0.0.1:9", "--header", "A: ${NOPE_1}"],
                "--header A: the variable NOPE_1 is not set; set it in",
            ),
            (
                ["http://127.0.0.1:9", "--header", "Bearer t"],
                "--header 'Bearer t': is not a header; write it as 'NAME: VALUE', on one line",
            ),
        ],
    )
    def test_wrong_arguments_get_one_message(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
    ) -> None:
        assert message_of(monkeypatch, capsys, "import", "tools", "mcp", *arguments).startswith(message)

    def test_nothing_but_this_machine_is_reached_offline(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TOOLEMU_OFFLINE", "1")
        assert message_of(monkeypatch, capsys, "import", "tools", "mcp", "https://tools.example/mcp") == (
            "tools.example: needs the network, but TOOLEMU_OFFLINE is set; unset it, or import from a file or a command"
        )
        for url in ("http://127.0.0.1/mcp", "http://[::1]/mcp", "http://localhost:8/mcp"):
            require_allowed(url, offline=True)
