"""The HTTP of clients: bodies in parts, connections that are kept, and requests that no client should send."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

import pytest

from pytest_toolemu.agents.mcp.http_connection import HttpConnection
from pytest_toolemu.agents.mcp.http_request import (
    MAX_BODY,
    MAX_HEAD,
    BadRequestError,
    HttpRequest,
    HttpResponse,
    RequestReader,
)

POST = b"POST /a/mcp HTTP/1.1\r\nHost: h\r\n"


def parse(*parts: bytes) -> tuple[list[HttpRequest], bytes]:
    """Return the requests in the bytes of a connection, and the interim responses."""
    sent = bytearray()
    reader = RequestReader(sent.extend)
    requests = []
    for part in parts:
        reader.feed(part)
        while request := reader.next_request():
            requests.append(request)
    return requests, bytes(sent)


def one_by_one(data: bytes) -> list[bytes]:
    return [data[index : index + 1] for index in range(len(data))]


@pytest.mark.parametrize(
    "data",
    [
        POST + b"Content-Length: 5\r\n\r\nhello",
        POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: t\r\n\r\n",
    ],
)
def test_a_body_arrives_whole_or_byte_by_byte(data: bytes) -> None:
    for parts in ([data], one_by_one(data)):
        requests, _ = parse(*parts)
        assert [(each.method, each.path, each.body) for each in requests] == [("POST", "/a/mcp", b"hello")]


def test_several_requests_on_one_connection_are_told_apart() -> None:
    data = POST + b"Content-Length: 1\r\n\r\na" + POST + b"Content-Length: 1\r\n\r\nb"
    for parts in ([data], one_by_one(data)):
        assert [request.body for request in parse(*parts)[0]] == [b"a", b"b"]


def test_a_client_that_waits_for_permission_to_send_its_body_gets_it() -> None:
    requests, sent = parse(POST + b"Expect: 100-continue\r\nContent-Length: 1\r\n\r\n", b"a")
    assert (requests[0].body, sent) == (b"a", b"HTTP/1.1 100 Continue\r\n\r\n")


@pytest.mark.parametrize(
    ("first", "keeps"),
    [
        (b"GET / HTTP/1.1\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: Close\r\n", False),
        (b"GET / HTTP/1.0\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n", True),
    ],
)
def test_the_client_decides_whether_the_connection_is_kept(first: bytes, keeps: bool) -> None:
    assert parse(first + b"\r\n")[0][0].keeps_connection is keeps


@pytest.mark.parametrize(
    ("data", "status", "message"),
    [
        (b"hello\r\n\r\n", 400, "the request line is not 'METHOD PATH HTTP/1.1'"),
        (b"GET / HTTP/2\r\n\r\n", 400, "the request line is not 'METHOD PATH HTTP/1.1'"),
        (POST + b"no colon\r\n\r\n", 400, "a header is not 'Name: value'"),
        (POST + b" Folded: x\r\n\r\n", 400, "a header is not 'Name: value'"),
        (POST + b"host: other\r\n\r\n", 400, "the header 'host' is given twice"),
        (POST + b"Content-Length: -1\r\n\r\n", 400, "Content-Length is not a number of bytes"),
        (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "the header 'content-length' is given twice"),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", 501, "the only supported transfer encoding is 'chunked'"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nxy\r\n", 400, "the size of a chunk is not a hexadecimal number"),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n",
            413,
            f"the body has more than {MAX_BODY} bytes; send shorter arguments",
        ),
        (
            POST + b"Content-Length: %d\r\n\r\n" % (MAX_BODY + 1),
            413,
            f"the body has more than {MAX_BODY} bytes; send shorter arguments",
        ),
        (POST + b"X: " + b"x" * MAX_HEAD, 431, f"the headers have more than {MAX_HEAD} bytes"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(data: bytes, status: int, message: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse(data)
    assert (refused.value.status, str(refused.value)) == (status, message)


class Wire(asyncio.Transport):
    """What a connection has written, and whether it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.state = "open"

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self.state = "closed"

    def abort(self) -> None:
        self.state = "aborted"


def connected(answer: Any) -> tuple[HttpConnection, Wire]:
    wire = Wire()
    connection = HttpConnection(answer)
    connection.connection_made(wire)
    return connection, wire


async def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, {"body": request.body.decode()})


def test_requests_of_a_connection_are_answered_in_order_and_it_closes_when_the_client_wishes() -> None:
    async def talking() -> Wire:
        connection, wire = connected(echo)
        connection.data_received(POST + b"Content-Length: 1\r\n\r\na" + POST + b"Content-Length: 1\r\n\r\nb")
        connection.data_received(POST + b"Connection: close\r\nContent-Length: 1\r\n\r\nc")
        while wire.state == "open":
            await asyncio.sleep(0)
        return wire

    wire = asyncio.run(talking())
    bodies = [json.loads(part.rpartition(b"\r\n\r\n")[2]) for part in wire.sent.split(b"HTTP/1.1 200 OK")[1:]]
    assert [body["body"] for body in bodies] == ["a", "b", "c"]
    assert wire.state == "closed"


def test_a_refused_request_is_answered_and_its_connection_closed() -> None:
    connection, wire = connected(echo)
    connection.data_received(b"hello\r\n\r\n")
    assert wire.sent.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert wire.state == "closed"


def test_a_client_that_sends_without_end_while_it_waits_is_cut_off() -> None:
    async def talking() -> str:
        async def never(_: HttpRequest) -> HttpResponse:
            return await asyncio.Future[HttpResponse]()

        connection, wire = connected(never)
        connection.data_received(POST + b"Content-Length: 0\r\n\r\n")
        connection.data_received(b"x" * (MAX_HEAD + MAX_BODY + 1))
        connection.connection_lost(None)
        return wire.state

    assert asyncio.run(talking()) == "aborted"
