"""One request of a program and its response: fetched from the provider and passed on while it arrives."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import urljoin

from pytest_toolemu.agents.model_gateway.passed_request import PassedRequest
from pytest_toolemu.errors import ModelError
from pytest_toolemu.formats.truncation import truncated
from pytest_toolemu.models.endpoint import NO_CREDIT, retry_after

_TIMEOUT: Final = 600.0
_CHUNK: Final = 65_536
_SHOWN: Final = 600
_MAX_BODY: Final = 64 * 1024 * 1024
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_NOT_PASSED: Final = ("connection", "content-length", "transfer-encoding", "keep-alive", "content-encoding")


class _UnfollowedRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: the request contains the key of the program, which is for one host only."""


@functools.cache  # on first use, since it reads the proxies in the environment
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_UnfollowedRedirects)


class Client(Protocol):
    """The connection of the program. A body without a length ends with the connection."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status and the headers."""
        ...

    def send(self, chunk: bytes) -> None:
        """Send a part of the body. Raise OSError if the program has hung up."""
        ...


class Exchange:
    """A request that is sent, perhaps several times, until a response begins. Its methods block."""

    def __init__(self, request: PassedRequest, client: Client) -> None:
        self.request = request
        self._client = client
        self._failure: tuple[int, dict[str, str], bytes] | None = None
        self.has_answered = False
        """Whether a response has begun, so that the request must not be sent again."""

    def fetch(self, label: str) -> tuple[bytes, http.client.HTTPMessage]:
        """Pass the response on, and return its body and headers. ModelError for any status but 200, and for none.

        ``label`` names the model in messages.
        """
        request = self.request
        upstream = urllib.request.Request(request.url, request.body, request.passed_headers, method="POST")
        try:
            with _opener().open(upstream, timeout=_TIMEOUT) as response:
                self._begin(response.status, dict(response.headers.items()))
                return self._relay(response, label), response.headers
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error, label) from None
        except (OSError, http.client.HTTPException) as error:
            if self.has_answered:
                raise ModelError(f"{label}: the response of {request.base_url} was cut off: {error}") from None
            reason = getattr(error, "reason", error)
            raise ModelError(f"{label}: {request.base_url} cannot be reached ({reason})", transient=True) from None

    def forward(self) -> None:
        """Pass on a request that is not a model call, and any response to it."""
        request = self.request
        upstream = urllib.request.Request(
            request.url, request.body or None, request.passed_headers, method=request.method
        )
        try:
            with _opener().open(upstream, timeout=_TIMEOUT) as response:
                self._begin(response.status, dict(response.headers.items()))
                self._relay(response, request.url)
        except urllib.error.HTTPError as error:
            with error:
                self.answer(error.code, dict(error.headers.items()), error.read(_MAX_BODY))
        except (OSError, http.client.HTTPException, ModelError) as error:
            self.refuse(502, f"{request.base_url} cannot be reached ({error})")

    def answer_failure(self, message: str) -> None:
        """Pass on the last response that was an error; else say why there is none."""
        if self._failure is not None:
            self.answer(*self._failure)
        else:
            self.refuse(502, message)

    def refuse(self, status: int, message: str) -> None:
        """Answer with an error in the format of both providers."""
        content = {"type": "error", "error": {"type": "api_error", "message": message, "code": None, "param": None}}
        self.answer(status, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Answer, unless a response has begun already. A program that has hung up gets nothing."""
        if not self.has_answered:
            with contextlib.suppress(OSError):
                self._begin(status, headers)
                self._client.send(body)

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.has_answered = True
        with contextlib.suppress(OSError):  # as above
            self._client.begin(status, {k: v for k, v in headers.items() if k.lower() not in _NOT_PASSED})

    def _relay(self, response: Any, label: str) -> bytes:
        body = bytearray()
        while chunk := response.read1(_CHUNK):
            body += chunk
            try:
                self._client.send(chunk)
            except OSError:  # the program has hung up; the provider notices it as well
                break
            if len(body) > _MAX_BODY:
                raise ModelError(f"{label}: the response has more than {_MAX_BODY:,} bytes")
        else:
            if response.length:  # read1 does not notice that the connection ended before the Content-Length
                raise http.client.IncompleteRead(bytes(body), response.length)
        return bytes(body)

    def _redirection(self, location: str) -> str:
        """Say where a redirect leads. The program does not get it: it would send its key there."""
        request = self.request
        url, variable = urljoin(request.url, location), f"{request.provider.upper()}_BASE_URL"
        if url.endswith(request.target):
            base_url = url.removesuffix(request.target)
            return f"{request.base_url} redirects to {base_url}; set {variable} to that address"
        return f"{request.url} redirects to {truncated(url.partition('?')[0], _SHOWN)}; correct {variable}"

    def _refused(self, error: urllib.error.HTTPError, label: str) -> ModelError:
        if location := error.headers.get("location") if error.code in _REDIRECTS else None:
            return ModelError(f"{label}: {self._redirection(location)}", status=error.code)
        body = error.read(_MAX_BODY)
        self._failure = (error.code, dict(error.headers.items()), body)
        text = body.decode("utf-8", "replace")
        shown = truncated(" ".join(text.split()), _SHOWN)
        has_credit = not any(code in text for code in NO_CREDIT)
        return ModelError(
            f"{label}: {self.request.base_url} answered {error.code}: {shown}",
            status=error.code,
            transient=(error.code in (408, 409, 429) or error.code >= 500) and has_credit,
            retry_after=retry_after({name.lower(): value for name, value in error.headers.items()}),
        )
