"""What clients send besides calls: negotiation of the protocol version, notifications, and requests that are refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from pytest_toolemu.agents.mcp import served
from pytest_toolemu.agents.mcp.served_tools import ServedTools
from pytest_toolemu.core.toolbox import Task, Toolbox
from tests.agents.scene import calls, toolbox
from tests.mcp.raw_client import CAPABILITIES, VERSION, post, request, stateless, tool_call
from tests.mcp.test_served_tools import run_served

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022


def answers(*exchanges: tuple[Any, dict[str, str]], **options: Any) -> list[tuple[int, Any]]:
    """Return the responses to bodies with headers."""

    async def asking() -> list[tuple[int, Any]]:
        async with served(toolbox()) as url:
            return [await post(url, body, headers, **options) for body, headers in exchanges]

    return asyncio.run(asking())


def answer(body: Any, headers: dict[str, str] | None = None, **options: Any) -> tuple[int, Any]:
    return answers((body, headers or {}), **options)[0]


def refusal(body: Any, headers: dict[str, str] | None = None, **options: Any) -> tuple[int, str]:
    """Return status and message of a refused request."""
    status, content = answer(body, headers, **options)
    return status, content["error"]["message"] if isinstance(content["error"], dict) else content["error"]


@pytest.mark.parametrize(
    ("requested", "agreed"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        (None, "2025-11-25"),
    ],
)
def test_a_handshake_agrees_on_a_version(requested: str | None, agreed: str) -> None:
    params = {"protocolVersion": requested, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    status, content = answer(request("initialize", params))
    assert (status, content["result"]["protocolVersion"]) == (200, agreed)
    assert content["result"]["capabilities"] == {"tools": {}}
    assert "emu" not in content["result"]["serverInfo"]["name"]


def test_the_version_without_handshake_is_served_by_every_request_alone() -> None:
    discover, tools, call = answers(
        stateless("server/discover"), stateless("tools/list"), stateless("tools/call", name="Lockers_Open")
    )
    assert [status for status, _ in (discover, tools, call)] == [200, 200, 200]
    assert "2026-07-28" in discover[1]["result"]["supportedVersions"]
    assert [each[1]["result"]["resultType"] for each in (discover, tools, call)] == ["complete"] * 3
    assert (tools[1]["result"]["ttlMs"], tools[1]["result"]["cacheScope"]) == (0, "private")


def test_a_name_that_is_not_ascii_is_read_from_its_encoded_header() -> None:
    message, headers = stateless("tools/call", name="Lockers_Open")
    headers["Mcp-Name"] = "=?base64?TG9ja2Vyc19PcGVu?="
    assert answer(message, headers)[0] == 200


@pytest.mark.parametrize(
    ("headers", "meta", "status", "code"),
    [
        ({"Mcp-Method": "tools/call"}, {}, 400, HEADER_MISMATCH),
        ({"MCP-Protocol-Version": "2025-11-25"}, {}, 400, HEADER_MISMATCH),
        ({"MCP-Protocol-Version": "2099-01-01"}, {VERSION: "2099-01-01"}, 400, UNSUPPORTED_VERSION),
        ({}, {VERSION: "2025-11-25"}, 400, HEADER_MISMATCH),
        ({}, {CAPABILITIES: None}, 200, None),
    ],
)
def test_headers_and_body_of_a_stateless_request_must_agree(
    headers: dict[str, str], meta: dict[str, Any], status: int, code: int | None
) -> None:
    message, regular = stateless("tools/list")
    message["params"]["_meta"] |= meta
    assert (answer(message, regular | headers)[0], code_of(answer(message, regular | headers)[1])) == (status, code)


def code_of(content: Any) -> int | None:
    code: int | None = content.get("error", {}).get("code")
    return code


def test_a_stateless_request_needs_its_envelope() -> None:
    message, headers = stateless("tools/list")
    del message["params"]["_meta"][CAPABILITIES]
    assert refusal(message, headers) == (
        400,
        "params._meta does not have the required io.modelcontextprotocol/clientCapabilities",
    )


def test_an_unsupported_version_is_answered_with_those_that_are_supported() -> None:
    status, content = answer(request("ping"), {"MCP-Protocol-Version": "1.0"})
    assert (status, content["error"]["code"]) == (400, UNSUPPORTED_VERSION)
    assert content["error"]["data"]["supported"][:2] == ["2026-07-28", "2025-11-25"]
    assert content["error"]["message"].startswith("the protocol version '1.0' is not supported; use one of 2026-07-28")


def test_a_session_id_is_neither_given_nor_needed_nor_refused() -> None:
    assert answer(request("ping"), {"Mcp-Session-Id": "from-an-earlier-server"})[1]["result"] == {}


def test_other_methods_are_unknown_in_the_form_that_each_version_expects() -> None:
    message, headers = stateless("resources/list")
    (old, new) = answers((request("resources/list"), {}), (message, headers))
    assert (old[0], code_of(old[1])) == (200, METHOD_NOT_FOUND)
    assert (new[0], code_of(new[1])) == (404, METHOD_NOT_FOUND)
    assert old[1]["error"]["message"] == "there is no method 'resources/list'; this server only has tools"


def test_notifications_and_responses_are_accepted_without_a_body() -> None:
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    response = {"jsonrpc": "2.0", "id": 3, "result": {}}
    assert answers((initialized, {}), (response, {}), ([initialized], {})) == [(202, None)] * 3


def test_a_batch_of_an_older_client_is_answered_as_a_batch() -> None:
    notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    status, content = answer([request("ping", request_id="a"), notification, tool_call(request_id=2)])
    assert (status, [each["id"] for each in content]) == (200, ["a", 2])


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{no JSON", PARSE_ERROR),
        (b"[" * 100_000, PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        ("text", INVALID_REQUEST),
        ({"id": 1, "method": "ping"}, INVALID_REQUEST),
        (request("ping", request_id=None), INVALID_REQUEST),
        (request("ping", request_id=True), INVALID_REQUEST),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, INVALID_REQUEST),
    ],
)
def test_a_body_that_is_no_message_is_refused(body: Any, code: int) -> None:
    status, content = answer(body)
    assert (status, content["error"]["code"], content["id"]) == (400, code, None)


@pytest.mark.parametrize(("params", "text"), [([], "params is not an object"), ({}, "params.name is not the name")])
def test_invalid_parameters_are_an_error_of_the_request(params: Any, text: str) -> None:
    status, content = answer(request("tools/call", params))
    assert (status, content["error"]["code"]) == (200, INVALID_PARAMS)
    assert text in content["error"]["message"]


def test_arguments_that_are_no_object_are_recorded_like_those_of_every_agent() -> None:
    async def asking() -> Any:
        box = toolbox()
        async with served(box) as url:
            await post(url, request("tools/call", {"name": "Lockers_Open", "arguments": "7"}))
            await post(url, request("tools/call", {"name": "Lockers_Close"}))
        return calls(box)

    assert asyncio.run(asking()) == [("Lockers_Open", 7), ("Lockers_Close", {})]


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS", "PUT"])
def test_streams_and_sessions_are_not_served(method: str) -> None:
    status, message = refusal(b"", method=method)
    assert (status, message) == (405, f"{method} is not served; send messages with POST")


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1.evil.example", "null", "http://[::1"])
def test_requests_of_web_pages_are_refused(origin: str) -> None:
    assert refusal(request("ping"), {"Origin": origin}) == (403, f"requests of the web page {origin!r} are refused")


@pytest.mark.parametrize("origin", ["http://127.0.0.1:3000", "http://localhost:6274"])
def test_requests_of_local_pages_are_answered(origin: str) -> None:
    assert answer(request("ping"), {"Origin": origin})[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "127.0.0.1", "127.0.0.1:1"])
def test_a_foreign_host_name_is_refused_so_that_no_page_gets_in_by_its_name_server(host: str) -> None:
    status, message = refusal(request("ping"), {"Host": host})
    assert status == 421
    assert message.startswith(f"the host {host!r} is not served; connect to 127.0.0.1:")


@pytest.mark.parametrize("path", ["/", "/mcp", "/unknown/mcp", "//mcp"])
def test_other_paths_are_not_found(path: str) -> None:
    assert refusal(request("ping"), path=path)[0] == 404


def test_the_path_continues_to_work_with_a_query_and_under_the_name_localhost() -> None:
    async def asking() -> int:
        async with served(toolbox()) as url:
            address = urlsplit(url)
            path = f"{address.path}?session=1"
            host = {"Host": f"LocalHost:{address.port}"}
            return (await post(url, request("ping"), host, path=path))[0]

    assert asyncio.run(asking()) == 200


@pytest.mark.parametrize("descriptions", [lambda: 1 / 0, lambda: [object()]])
def test_an_error_of_the_server_itself_ends_the_turn_and_is_not_blamed_on_the_agent(
    descriptions: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServedTools, "descriptions", lambda _: descriptions())
    answers: list[tuple[int, Any]] = []

    async def agent(_: Task, box: Toolbox) -> str:
        async with served(box) as url:
            answers.append(await post(url, request("tools/list")))
        return "There are no tools."

    run = asyncio.run(run_served(agent))
    assert (answers[0][0], answers[0][1]["error"]["message"]) == (
        500,
        "the server has failed, and the session has ended",
    )
    assert run.outcome == "broken"
    assert run.error is not None
    assert run.error.origin == "harness"


def test_the_answer_is_json_in_utf_8() -> None:
    assert json.dumps(answer(request("ping", request_id="ä"))[1]["id"], ensure_ascii=False) == '"ä"'
