"""``toolemu import tools capture``: the tools in an agent's first request to a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pytest_toolemu.agents.mcp import started_server
from pytest_toolemu.authoring.importers.request_capture import RecordingEndpoint, environment
from pytest_toolemu.core.case_loading import load_toolkit
from tests.authoring.tool_sources.imports import PARAMETERS, toolemu
from tests.usage_errors import message_of

TOOL = {"name": "read_log", "description": "Read.", "input_schema": PARAMETERS}
AGENT = """\
import json, os, sys, urllib.error, urllib.request
for tools in ([], json.loads(sys.argv[1])):
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    body = json.dumps({"model": "m", "messages": [], "tools": tools}).encode()
    try:
        urllib.request.urlopen(urllib.request.Request(url, body, {"x-api-key": os.environ["ANTHROPIC_API_KEY"]}))
    except urllib.error.HTTPError as error:
        open("told.txt", "a").write(json.load(error)["error"]["message"] + "\\n")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boat_agent.py").write_text(AGENT)
    return tmp_path


def test_the_first_request_with_tools_is_recorded(folder: Path) -> None:
    output = toolemu("import", "tools", "capture", "--", sys.executable, "-S", "boat_agent.py", json.dumps([TOOL]))
    assert output.startswith("toolkits/BoatAgent.toolkit.yaml: 1 tool\n")
    (tool,) = load_toolkit(folder / "toolkits/BoatAgent.toolkit.yaml").tools
    assert (tool.call_as, tool.description) == ("read_log", "Read.")
    assert Path("told.txt").read_text().startswith("toolemu records requests with tools and sends no replies;")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["no-such-agent"], "no-such-agent: cannot be started: No such file or directory; write the command after '--'"),
        (["sh", "-c", "echo sorry >&2; exit 3"], "exited with status 3 and sent no request to a model; it must read "
         "OPENAI_BASE_URL or ANTHROPIC_BASE_URL, and may need a task or more --timeout; stderr: sorry"),
        (["sleep", "600"], "sleep 600: did not exit within 0.2 s and sent no request to a model;"),
    ],
)  # fmt: skip
def test_an_agent_that_sends_no_tools_gets_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str], message: str
) -> None:
    error = message_of(monkeypatch, capsys, "import", "tools", "capture", "--timeout", "0.2", "--", *command)
    assert message in error
    assert error.count("\n") == 0


def answered(*requests: tuple[str, str, bytes]) -> tuple[RecordingEndpoint, list[httpx2.Response], list[str]]:
    """Return the endpoint after requests of (method, path below its URL, body), its responses, and recorded names."""
    endpoint, server = RecordingEndpoint(), started_server()
    url = server.open(endpoint)
    responses = [httpx2.request(method, url + path, content=body) for method, path, body in requests]
    server.close(url)
    names = [tool.name for tool in endpoint.recorded.result()] if endpoint.recorded.done() else []
    return endpoint, responses, names


def test_a_program_gets_the_address_a_key_and_no_proxy() -> None:
    environ = environment("http://127.0.0.1:8123/t", {"NO_PROXY": "intranet", "OPENAI_API_KEY": "k"})
    assert environ["NO_PROXY"] == "intranet,127.0.0.1"
    assert (environ["OPENAI_API_KEY"], environ["ANTHROPIC_API_KEY"]) == ("k", "recorded-by-toolemu")
    assert environ["OPENAI_BASE_URL"] == f"{environ['ANTHROPIC_BASE_URL']}/v1" == "http://127.0.0.1:8123/t/v1"


@pytest.mark.parametrize(
    "offered",
    [
        {"tools": [TOOL]},
        {"tools": [{"type": "function", "name": "read_log", "parameters": PARAMETERS}], "input": "hello"},
        {"tools": [{"type": "function", "function": {"name": "read_log", "parameters": PARAMETERS}}], "messages": []},
        {"functions": [{"name": "read_log", "parameters": PARAMETERS}]},
    ],
)
def test_requests_of_each_format_are_recorded_and_refused(offered: Any) -> None:
    _, (response,), names = answered(("POST", "/v1/chat/completions", json.dumps(offered).encode()))
    assert names == ["read_log"]
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("toolemu has recorded the tools of this request")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"[" * 100_000, b'{"tools": "a"}', b'{"tools": [{"type": "web_search"}]}']
)
def test_requests_without_tools_are_counted_and_refused(body: bytes) -> None:
    endpoint, (response,), names = answered(("POST", "/v1/messages", body))
    assert (endpoint.requests, names, response.status_code) == (1, [], 400)


def test_other_requests_are_refused() -> None:
    endpoint, responses, _ = answered(("GET", "/v1/models", b""), ("POST", "x/v1/messages", b"{}"))
    assert [response.status_code for response in responses] == [404] * 2
    assert endpoint.requests == 0
