"""The loopback server by itself: models, parallel requests, its log, and as a process of its own."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

import anthropic
import openai
import pytest

from tests.loopback import (
    LoopbackServer,
    Reply,
    by_role,
    conforming,
    replies,
    together,
)
from tests.loopback.fixtures import Loopback
from tests.loopback.sdk_calls import OPENAI_TOOLS, USER, ask_openai, with_anthropic, with_openai


def test_openai_lists_the_models(loopback: Loopback) -> None:
    async def ask(client: openai.AsyncOpenAI) -> Any:
        names = [model.id async for model in client.models.list()]
        return (
            names,
            (await client.models.retrieve("org/small")).id,
            await absent_model_is_not_found(client, openai.NotFoundError),
        )

    server = loopback(models=["gpt-x", "org/small"])
    assert with_openai(server, ask) == (["gpt-x", "org/small"], "org/small", True)
    assert [request.role for request in server.requests] == ["", "", ""]


def test_anthropic_lists_the_models(loopback: Loopback) -> None:
    async def ask(client: anthropic.AsyncAnthropic) -> Any:
        names = [model.id async for model in client.models.list()]
        return (
            names,
            (await client.models.retrieve("claude-x")).id,
            await absent_model_is_not_found(client, anthropic.NotFoundError),
        )

    assert with_anthropic(loopback(models=["claude-x"]), ask) == (["claude-x"], "claude-x", True)


async def absent_model_is_not_found(client: Any, error: type[Exception]) -> bool:
    with pytest.raises(error, match="'absent' does not exist"):
        await client.models.retrieve("absent")
    return True


def test_an_unknown_endpoint_does_not_exist(loopback: Loopback) -> None:
    async def ask(client: openai.AsyncOpenAI) -> Any:
        with pytest.raises(openai.NotFoundError, match="POST /v1/responses"):
            await client.responses.create(model="gpt-x", input="Hello.")

    with_openai(loopback(), ask)


def test_sixty_four_requests_are_in_flight_at_once(loopback: Loopback) -> None:
    server = loopback(together(64, conforming()))

    async def ask(client: openai.AsyncOpenAI) -> list[Any]:
        turn: Any = USER
        once = (client.chat.completions.create(model="gpt-x", messages=turn) for _ in range(64))
        return await asyncio.gather(*once)

    assert [answer.choices[0].message.content for answer in with_openai(server, ask)] == ["Done."] * 64
    assert server.peak == 64
    assert sorted(request.number for request in server.requests) == list(range(1, 65))


def test_sequential_requests_never_overlap(loopback: Loopback) -> None:
    server = loopback()

    async def ask(client: openai.AsyncOpenAI) -> None:
        turn: Any = USER
        for _ in range(20):
            await client.chat.completions.create(model="gpt-x", messages=turn)

    with_openai(server, ask)
    assert (len(server.requests), server.peak) == (20, 1)


def test_a_client_that_leaves_is_no_longer_in_flight() -> None:
    client_left = threading.Event()

    async def main() -> None:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        async def never_answers() -> Reply:
            loop.call_soon_threadsafe(arrived.set)
            try:
                await asyncio.Event().wait()
            finally:
                client_left.set()
            raise AssertionError("nobody sets this event")

        turn: Any = USER
        with LoopbackServer(lambda request: never_answers() if request.number == 1 else Reply("Next.")) as server:
            async with openai.AsyncOpenAI(api_key="sk", base_url=f"{server.url}/v1", max_retries=0) as client:
                first = asyncio.create_task(client.chat.completions.create(model="gpt-x", messages=turn))
                await arrived.wait()
                first.cancel()
                assert await asyncio.to_thread(client_left.wait, 30)
                second = await client.chat.completions.create(model="gpt-x", messages=turn)
        assert (second.choices[0].message.content, server.peak) == ("Next.", 1)

    asyncio.run(main())


def test_the_log_is_served_as_json(loopback: Loopback) -> None:
    server = loopback()
    ask_openai(server, tools=OPENAI_TOOLS)
    with urllib.request.urlopen(f"{server.url}/__log") as response:
        log = json.load(response)
    assert (log["peak"], log["errors"], len(log["requests"])) == (1, [], 1)
    assert log["requests"][0]["messages"] == [{"role": "user", "text": "Pay Anna.", "calls": [], "call_id": ""}]
    assert log["requests"][0]["role"] == "agent"


def test_a_body_that_is_not_json_is_refused(loopback: Loopback) -> None:
    server = loopback()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 3\r\n\r\n{no")
        head = client.recv(65536)
    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert b"cannot be read" in head


def test_anthropics_version_is_required(loopback: Loopback) -> None:
    server = loopback()
    with pytest.raises(urllib.error.HTTPError, match="400") as caught:
        urllib.request.urlopen(f"{server.url}/v1/messages", b"{}")
    with caught.value as answer:
        error = json.load(answer)["error"]
    assert error == {"type": "invalid_request_error", "message": "anthropic-version: header is required"}


def test_a_client_may_leave_in_the_middle_of_its_request(loopback: Loopback) -> None:
    server = loopback()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 30\r\n\r\n{")
    ask_openai(server)
    assert len(server.requests) == 1


def test_a_port_in_use_is_named_in_the_error(loopback: Loopback) -> None:
    used_port = loopback().port
    with pytest.raises(OSError, match=re.escape(str(used_port))), LoopbackServer(port=used_port):
        pytest.fail("it must not start")


def test_the_server_runs_as_a_process() -> None:
    command = [sys.executable, "-m", "tests.loopback", "--port", "0", "--key", "sk", "--model", "gpt-x"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            remote = LoopbackServer(port=int(process.stdout.readline()))  # not started: it only knows the URL
            assert ask_openai(remote).choices[0].message.content == "Done."
            with urllib.request.urlopen(f"{remote.url}/__log") as response:
                assert [request["number"] for request in json.load(response)["requests"]] == [1]
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_tests_in_another_process_reach_the_server(loopback: Loopback, pytester: pytest.Pytester) -> None:
    server = loopback(by_role(agent=replies(["Hello.", "Hello."])))
    pytester.makepyfile(
        f"""
        import urllib.request, pytest

        @pytest.mark.parametrize("number", [1, 2])
        def test_it(number):
            body = b'{{"model": "m", "messages": [{{"role": "user", "content": "Hello?"}}]}}'
            with urllib.request.urlopen("{server.url}/v1/chat/completions", body) as response:
                assert b"Hello." in response.read()
        """
    )
    pytester.runpytest_subprocess("-p", "no:toolemu", "-n2").assert_outcomes(passed=2)
    assert len(server.requests) == 2
