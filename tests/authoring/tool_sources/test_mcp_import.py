"""``toolemu toolkit import mcp``: servers that are commands or at URLs, whatever they answer."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pytest_toolemu.authoring.importers.tool_sources.bounded_http import require_allowed
from pytest_toolemu.authoring.importers.tool_sources.mcp_command import command_name
from pytest_toolemu.authoring.importers.tool_sources.mcp_listing import list_tools
from pytest_toolemu.core.toolkit_files import load_toolkit
from pytest_toolemu.errors import UsageError
from tests.authoring.tool_sources.imports import Json, ScriptedServer, entries, toolemu
from tests.usage_errors import message_of


def listed(server: ScriptedServer) -> list[str]:
    return [tool.name for tool in list_tools(server, 60.0, "1").tools]


class TestListing:
    def test_all_pages_are_read(self) -> None:
        server = ScriptedServer({"tools": entries(["a", "b"]), "nextCursor": "2"}, {"tools": entries(["c"])})
        assert listed(server) == ["a", "b", "c"]
        assert [method for method, _ in server.requests] == [
            "initialize",
            "notifications/initialized",
            "tools/list",
            "tools/list",
        ]
        assert server.requests[-1] == ("tools/list", {"cursor": "2"})

    def test_the_source_is_described(self) -> None:
        about = {"serverInfo": {"title": "Boat Shed", "name": "b", "version": "2"}, "instructions": "Be kind to boats."}
        source = list_tools(ScriptedServer({"tools": entries(["a"])}, about=about), 60.0, "1")
        assert (source.name, source.origin, source.description) == (
            "Boat Shed",
            "the MCP server Boat Shed 2",
            "Be kind to boats.",
        )

    def test_a_list_without_an_end_is_cut(self) -> None:
        endless = {"tools": entries(["a"]), "nextCursor": "1"}
        source = list_tools(ScriptedServer(endless, endless, endless), 60.0, "1")
        assert list(source.notes) == ["the list of tools has no end; later tools are left out"]

    def test_entries_that_are_no_tools_are_left_out(self) -> None:
        deep: Any = {}
        for _ in range(150):
            deep = {"items": deep}
        bad = [None, 1, {}, {"name": ""}, {"name": "deep", "inputSchema": deep}]
        source = list_tools(ScriptedServer({"tools": [*bad, *entries(["a"])]}), 60.0, "1")
        assert [tool.name for tool in source.tools] == ["a"]
        assert [len(locations) for locations in source.notes.values()] == [5]

    @pytest.mark.parametrize(
        ("page", "message"),
        [
            ({"tools": []}, "node server.js: the server lists no tools; check that it is the intended server"),
            ({"tools": [3]}, r"none of the 1 entries in tools/list is a tool with a name"),
            ({"tools": "a"}, r'reply to tools/list has no list of tools: {"tools": "a"}'),
            ({"error": {"message": "no\x1b"}}, r'the server refuses tools/list: "no\\u001b"'),
        ],
    )
    def test_a_server_without_tools_is_an_error(self, page: Json, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            list_tools(ScriptedServer(page), 60.0, "1")

    def test_a_reply_that_is_no_object_is_an_error(self) -> None:
        server = ScriptedServer()
        server.replies["initialize"] = [{"result": [1]}]
        with pytest.raises(UsageError, match=r"the server's reply to initialize is not an object: \[1\]"):
            list_tools(server, 60.0, "1")


SERVER = """\
import json, os, subprocess, sys
child = subprocess.Popen(["sleep", "600"])
open(sys.argv[1], "w").write(str(child.pid))
print("Welcome to the boat shed")
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        print(json.dumps({"jsonrpc": "2.0", "id": "p", "method": "roots/list"}), flush=True)
        assert "error" in json.loads(sys.stdin.readline())
        result = {"serverInfo": {"name": "boat-shed"}}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "read_log", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Repeated without end by a server that never reads the answers.
REQUEST_OF_A_SERVER = json.dumps({"jsonrpc": "2.0", "id": "a", "method": "roots/list"})


class TestCommand:
    def test_the_tools_are_imported_and_nothing_is_left_running(self, folder: Path) -> None:
        Path("server.py").write_text(SERVER)
        command = (sys.executable, "-IS", "server.py", "pid")
        output = toolemu("toolkit", "import", "mcp", "--", *command)
        assert output.startswith("toolkits/BoatShed.toolkit.yaml: 1 tool\n")
        (tool,) = load_toolkit(folder / "toolkits/BoatShed.toolkit.yaml").tools
        assert (tool.call_as, tool.effect, "effect" in tool.inferred) == ("read_log", "read", False)
        assert has_ended(int(Path("pid").read_text()))

    @pytest.mark.usefixtures("folder")
    @pytest.mark.parametrize(
        ("command", "message"),
        [
            (["no-such-server"], "no-such-server: cannot be started: No such file or directory; write the command after '--'"),
            (["echo", "hello"], "echo hello: exited before it answered initialize: exited with status 0; stderr: empty; "
             "stdout has a line that is not JSON: 'hello'"),
            (["sh", "-c", "echo no key >&2; exit 3"], "exited before it answered initialize: exited with status 3; stderr: no key"),
            (["yes", REQUEST_OF_A_SERVER], "did not answer initialize within 0.3 s (is still running; stderr: empty); raise"),
            (["sleep", "600"], "sleep 600: did not answer initialize within 0.3 s (is still running; stderr: empty); raise "
             "--timeout, and check that it is an MCP server"),
        ],
    )  # fmt: skip
    def test_a_command_that_is_no_server_gets_one_message(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str], message: str
    ) -> None:
        arguments = ("toolkit", "import", "mcp", "--timeout", "0.3", "--", *command)
        error = message_of(monkeypatch, capsys, *arguments)
        assert message in error
        assert error.count("\n") == 0


def test_a_command_is_named_without_secrets() -> None:
    command = ["env", "TOKEN=s3", "npx", "-y", "a server", "postgres://u:p@h/d", "--key", "s3"]
    assert command_name(command) == "env 'TOKEN=…' npx -y 'a server' … …"


def has_ended(process: int) -> bool:
    """Wait until a process that is no child of this one has ended, or is a zombie that nobody has waited for."""
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(process, 0)
            if " Z " not in Path(f"/proc/{process}/stat").read_text():
                continue
        return True
    return False


class Site(ThreadingHTTPServer):
    """A server at a URL; ``answer`` returns status, headers, and content for the method and the request."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str, Json, Any], tuple[int, dict[str, str], str]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.requests: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((message["method"], dict(self.headers)))
        self._send(*self.server.answer(message["method"], message, self.headers))

    def do_DELETE(self) -> None:
        self.server.requests.append(("DELETE", dict(self.headers)))
        self._send(200, {}, "")

    def _send(self, status: int, headers: dict[str, str], content: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content.encode())), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content.encode())

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@pytest.fixture
def site(folder: Path) -> Iterator[Site]:
    del folder
    server = Site(as_json)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


RESULTS: dict[str, Any] = {
    "initialize": {"serverInfo": {"name": "boat-shed"}, "protocolVersion": "2025-03-26"},
    "tools/list": {"tools": entries(["read_log"])},
}


def reply(message: Json) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": RESULTS.get(message["method"], {})})


def as_json(method: str, message: Json, headers: Any) -> tuple[int, dict[str, str], str]:
    del method, headers
    return 200, {"Content-Type": "application/json", "Mcp-Session-Id": "s-1"}, reply(message)


def as_events(method: str, message: Json, headers: Any) -> tuple[int, dict[str, str], str]:
    del method, headers
    other = json.dumps({"jsonrpc": "2.0", "method": "notifications/message"})
    text = f": ping\r\n\r\nevent: message\r\ndata: {other}\r\n\r\ndata: {reply(message)}\r\n\r\n"
    return 200, {"Content-Type": "text/event-stream; charset=utf-8"}, text


def refused(status: int, **headers: str) -> Callable[[str, Json, Any], tuple[int, dict[str, str], str]]:
    return lambda _method, _message, _headers: (status, headers, "<b>no\x1b</b>")


def drip(listener: socket.socket) -> None:
    """Send a header byte by byte, for longer than the client waits."""
    connection, _ = listener.accept()
    never = threading.Event()
    with suppress(OSError), connection:
        for byte in b"HTTP/1.1 200 OK\r\nA: aaaaaaaaaaaaaaaa":
            connection.sendall(bytes([byte]))
            never.wait(0.05)


class TestUrl:
    @pytest.mark.parametrize("answer", [as_json, as_events])
    def test_replies_are_json_or_events(self, site: Site, answer: Any) -> None:
        site.answer = answer
        output = toolemu("toolkit", "import", "mcp", site.url, "--header", "Authorization: Bearer t-1")
        assert output.startswith("toolkits/BoatShed.toolkit.yaml: 1 tool\n")
        assert {headers["Authorization"] for _, headers in site.requests} == {"Bearer t-1"}

    def test_a_header_can_name_a_variable(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BOAT_TOKEN", "t-2")
        toolemu("toolkit", "import", "mcp", site.url, "--header", "Authorization: Bearer ${BOAT_TOKEN}")
        assert {headers["Authorization"] for _, headers in site.requests} == {"Bearer t-2"}

    def test_the_session_is_kept_and_ended(self, site: Site) -> None:
        toolemu("toolkit", "import", "mcp", site.url)
        versions = [headers.get("Mcp-Protocol-Version") for _, headers in site.requests]
        assert versions == [None, "2025-03-26", "2025-03-26", "2025-03-26"]
        assert [(method, headers.get("Mcp-Session-Id")) for method, headers in site.requests] == [
            ("initialize", None),
            ("notifications/initialized", "s-1"),
            ("tools/list", "s-1"),
            ("DELETE", "s-1"),
        ]

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (refused(401), "HTTP status 401: <b>no\\x1b</b>; give a token with --header 'Authorization: Bearer TOKEN'"),
            (refused(404), "HTTP status 404: <b>no\\x1b</b>; check the path, which is often /mcp"),
            (
                refused(302, Location="http://elsewhere.example/"),
                "redirects to http://elsewhere.example/; use this URL if",
            ),
            (refused(200), "the reply is not JSON: '<b>no\\x1b</b>'; check that the URL is that of an MCP server"),
            (
                lambda *_: (200, {"Content-Type": "text/event-stream"}, ": ping\n\n"),
                "the reply to initialize has no answer;",
            ),
        ],
    )
    def test_other_answers_get_one_message(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: Any, message: str
    ) -> None:
        site.answer = answer
        error = message_of(monkeypatch, capsys, "toolkit", "import", "mcp", site.url)
        assert error.startswith(f"{site.url}: {message}")
        assert error.count("\n") == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["http://127.0.0.1:9/mcp"], "http://127.0.0.1:9/mcp: cannot be reached: Connection refused; check"),
            (["ftp://a/b"], "ftp://a/b: is not a URL; write a URL such as https://HOST/PATH"),
            (["http://[::1"], "http://[::1: is not a URL; write a URL such as https://HOST/PATH"),
            (["http://u:s3@127.0.0.1:9"], "127.0.0.1: the URL contains a name or a password; give them with --header"),
            (["--header", "a: b", "--", "true"], "--header applies only to a server at a URL; pass keys to a command"),
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
        assert message_of(monkeypatch, capsys, "toolkit", "import", "mcp", *arguments).startswith(message)

    def test_headers_that_come_byte_by_byte_do_not_extend_the_time(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=drip, args=(listener,), daemon=True).start()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            error = message_of(monkeypatch, capsys, "toolkit", "import", "mcp", url, "--timeout", "0.2")
        assert error == f"{url}: did not answer in time; raise --timeout"

    def test_nothing_but_this_machine_is_reached_offline(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TOOLEMU_OFFLINE", "1")
        assert message_of(monkeypatch, capsys, "toolkit", "import", "mcp", "https://tools.example/mcp") == (
            "tools.example: needs the network, but TOOLEMU_OFFLINE is set; unset it, or import from a file or a command"
        )
        for url in ("http://127.0.0.1/mcp", "http://[::1]/mcp", "http://localhost:8/mcp"):
            require_allowed(url, offline=True)
