"""What clients send besides calls: negotiation of the protocol version, notifications, and requests that are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from pytest_toolemu.agents.local_server import ServedTools
from pytest_toolemu.agents.mcp import served
from pytest_toolemu.core.toolbox import Task, Toolbox
from tests.agents.scene import toolbox
from tests.mcp.raw_client import post, request, stateless
from tests.mcp.test_served_tools import run_served


def answers(*exchanges: tuple[Any, dict[str, str]], **options: Any) -> list[tuple[int, Any]]:
    """Return the responses to bodies with headers."""

    async def asking() -> list[tuple[int, Any]]:
        async with served(toolbox()) as url:
            return [await post(url, body, headers, **options) for body, headers in exchanges]

    return asyncio.run(asking())


def answer(body: Any, headers: dict[str, str] | None = None, **options: Any) -> tuple[int, Any]:
    return answers((body, headers or {}), **options)[0]


@pytest.mark.parametrize(
    ("requested", "agreed"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ],
)
def test_a_handshake_agrees_on_a_version(requested: str, agreed: str) -> None:
    params = {"protocolVersion": requested, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    status, content = answer(request("initialize", params))
    assert (status, content["result"]["protocolVersion"]) == (200, agreed)
    assert set(content["result"]["capabilities"]) == {"tools"}
    assert "emu" not in content["result"]["serverInfo"]["name"]


def test_the_version_without_handshake_is_served_by_every_request_alone() -> None:
    discover, tools, call = answers(
        stateless("server/discover"), stateless("tools/list"), stateless("tools/call", name="Lockers_Open")
    )
    assert [status for status, _ in (discover, tools, call)] == [200, 200, 200]
    assert "2026-07-28" in discover[1]["result"]["supportedVersions"]
    assert [each[1]["result"]["resultType"] for each in (discover, tools, call)] == ["complete"] * 3
    assert (tools[1]["result"]["ttlMs"], tools[1]["result"]["cacheScope"]) == (0, "private")


def test_a_session_id_is_neither_given_nor_needed_nor_refused() -> None:
    assert answer(request("ping"), {"Mcp-Session-Id": "from-an-earlier-server"})[1]["result"] == {}


def test_notifications_and_responses_are_accepted_without_a_body() -> None:
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    response = {"jsonrpc": "2.0", "id": 3, "result": {}}
    assert answers((initialized, {}), (response, {})) == [(202, None)] * 2


@pytest.mark.parametrize("body", [b"{no JSON", b"[" * 100_000, b"[]", "text", {"id": 1, "method": "ping"}])
def test_a_body_that_is_no_message_is_refused(body: Any) -> None:
    status, content = answer(body)
    assert (status, "error" in content) == (400, True)


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS", "PUT"])
def test_streams_and_sessions_are_not_served(method: str) -> None:
    assert answer(b"", method=method) == (405, None)


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1.evil.example", "null", "http://[::1"])
def test_requests_of_web_pages_are_refused(origin: str) -> None:
    assert answer(request("ping"), {"Origin": origin}) == (403, "Invalid Origin header")


@pytest.mark.parametrize("origin", ["http://127.0.0.1:3000", "http://localhost:6274"])
def test_requests_of_local_pages_are_answered(origin: str) -> None:
    assert answer(request("ping"), {"Origin": origin})[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "127.0.0.1"])
def test_a_foreign_host_name_is_refused_so_that_no_page_gets_in_by_its_name_server(host: str) -> None:
    assert answer(request("ping"), {"Host": host}) == (421, "Invalid Host header")


@pytest.mark.parametrize("path", ["/", "/unknown/mcp", "//mcp"])
def test_other_paths_are_not_found(path: str) -> None:
    assert answer(request("ping"), path=path)[0] == 404


def test_the_path_continues_to_work_with_a_query_and_under_the_name_localhost() -> None:
    async def asking() -> int:
        async with served(toolbox()) as url:
            address = urlsplit(url)
            path = f"{address.path}?session=1"
            host = {"Host": f"localhost:{address.port}"}
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
    assert "error" in answers[0][1]
    assert run.outcome == "broken"
    assert run.error is not None
    assert run.error.origin == "harness"
