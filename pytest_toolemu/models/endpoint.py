"""Where a model's requests go, and how their failures read: one sentence each, never with a credential in it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from pytest_toolemu.core.messages import Model
from pytest_toolemu.errors import ModelError
from pytest_toolemu.formats.redaction import redact
from pytest_toolemu.formats.secret_registry import REGISTRY
from pytest_toolemu.models.proxies import proxy_of
from pytest_toolemu.models.rate_limit_headers import Quota, quotas
from pytest_toolemu.models.spec import ModelSpec

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

# The models route answers at once or not at all; no session waits longer for it before it starts.
ROUTE_SECONDS: Final = 20.0
_SHOWN: Final = 600
# 429 is "later" for a rate and "never" for an account without credit.
_NO_CREDIT: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})


class Endpoint(Model, Protocol):
    """A model behind a URL: it says what is served there, and must be closed."""

    async def served(self) -> list[str]:
        """Names of the models at the URL; costs no tokens."""
        ...

    async def confirm(self, name: str) -> None:
        """Return if the URL knows this name or alias; ModelError, of status 404 if it does not. Costs no tokens."""
        ...

    async def probe(self) -> None:
        """Ask for a completion of nothing, which costs no tokens: ModelError of status 404, 405 or 200 if the URL has
        no such route, and of another status if it has.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections. The model cannot be used afterwards."""
        ...


class RemoteModel(Endpoint, Protocol):
    """An endpoint that requests are really sent to, and that has a limit of them."""

    @property
    def account(self) -> str:
        """Names provider, key and model: what shares a rate limit. Never the key itself."""
        ...

    def quotas(self) -> tuple[Quota | None, Quota | None]:
        """What the headers since the last call say is left of requests and tokens."""
        ...


@dataclass(frozen=True)
class EndpointAddress:
    """Where requests go and with which credential: ``secret`` from ``variable``, or None where none is needed.

    ``recorded_as`` replaces the URL in identities, for servers whose port differs between sessions.
    """

    spec: ModelSpec
    base_url: str
    variable: str
    secret: str | None = field(repr=False)
    recorded_as: str = ""
    _heard: list[tuple[Quota | None, Quota | None]] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.secret:
            REGISTRY.register(self.secret, self.variable)

    @property
    def account(self) -> str:
        """Names provider, key and model: what shares a rate limit. Never the key itself."""
        key = hashlib.sha256(self.secret.encode()).hexdigest()[:8] if self.secret else "no key"
        return f"{self.spec.label}@{urlsplit(self.base_url).netloc} ({key})"

    async def hear(self, response: Any) -> None:
        """What the SDK's HTTP client calls with each response."""
        self._heard[:] = [quotas(response.headers)]

    def quotas(self) -> tuple[Quota | None, Quota | None]:
        """What the headers since the last call say is left of requests and tokens."""
        return self._heard.pop() if self._heard else (None, None)

    async def send(
        self, request: Awaitable[Any], read: Callable[[Any], T], errors: type[Exception], seconds: float
    ) -> T:
        """What ``read`` makes of the answer to an SDK's request; whatever goes wrong is a ModelError.

        ``errors`` is the base of the SDK's errors. ``read`` raises ValueError with what it got where that is no answer.
        """
        failure: ModelError
        try:
            async with asyncio.timeout(seconds):
                return read(await request)
        except TimeoutError:
            failure = self._unreachable(f"did not answer in {seconds:g} s", "")
        except errors as error:
            failure = self._failure(error)
        except (AttributeError, ValueError) as error:
            failure = self._malformed(str(error))
        # Raised out here: inside an except clause it would carry the SDK's error, and so its request, as __context__.
        raise failure

    def _malformed(self, what: str) -> ModelError:
        # A gateway's hiccup more often than not, so transient.
        message = f"{self.spec.label}: {self.base_url} answered with {self._clean(what)!r} in place of a reply"
        return ModelError(message, status=200, transient=True)

    def _unreachable(self, what: str, question: str) -> ModelError:
        """Say that there was no answer; through a proxy, that may be what does not work."""
        if proxy := proxy_of(self.base_url):
            question = f"; it was asked through the proxy {proxy.address}: {proxy.remedy}"
        return ModelError(f"{self.spec.label}: {self.base_url} {what}{question}", transient=True)

    def _failure(self, error: Exception) -> ModelError:
        status: int | None = getattr(error, "status_code", None)
        if status is None:
            cause = self._clean(str(error.__cause__ or error))
            return self._unreachable(f"cannot be reached ({cause})", "; is a server running there?")
        proxy = proxy_of(self.base_url)
        if status == 407 and proxy:
            told = (
                f"the proxy {proxy.address} asks for a user name and a password (407); put them into {proxy.variable}"
            )
            return ModelError(f"{self.spec.label}: {told}", status=407)
        if status == 401:
            problem = "asks for a key" if self.secret is None else f"refused the key in {self.variable}"
            remedy = f"put a valid one into {self.variable} in the environment or the .env file"
            return ModelError(f"{self.spec.label}: {self.base_url} {problem} (401); {remedy}", status=401)
        text, code = _complaint(getattr(error, "body", None))
        by_proxy = f" (asked through the proxy {proxy.address} of {proxy.variable})" if proxy and status >= 500 else ""
        return ModelError(
            f"{self.spec.label}: {self.base_url} answered {status}: {self._clean(text or str(error))}{by_proxy}",
            status=status,
            transient=(status in (408, 409, 429) or status >= 500) and code not in _NO_CREDIT,
            retry_after=_retry_after(getattr(error, "response", None)),
        )

    def _clean(self, text: str) -> str:
        line = " ".join(redact(text).split())
        return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"


@contextlib.contextmanager
def reading(response: httpx2.Response) -> Iterator[Any]:
    """The JSON value of a response with status 200. ValueError with what it is instead, where it is none or lacks what
    is read in it: the SDKs do not validate either, and a gateway may answer with an HTML page or an error object.
    """
    try:
        value = response.json()
    except ValueError:
        raise ValueError(response.text) from None
    try:
        yield value
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # Not the text: a credential in it may be written with escapes, and pass unrecognised.
        raise ValueError(f"({_why(error)}) {json.dumps(value, ensure_ascii=False)}") from None


def read_nothing(response: httpx2.Response) -> None:
    """Accept any JSON. ValueError for anything else, such as a web page."""
    with reading(response):
        pass


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):  # whose own text shows a part of what it was given
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"no {error}" if isinstance(error, KeyError) else str(error)


def _complaint(body: Any) -> tuple[str, str]:
    """What an error body says, with the parameter it names, and its code; endpoints agree on no one shape."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(inner, dict):
        return (inner if isinstance(inner, str) else json.dumps(inner) if inner else ""), ""
    said = inner.get("message") or inner.get("detail") or inner
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    param = inner.get("param")
    if isinstance(param, str) and param not in text:
        text = f"{text} ({param})"
    return text, str(inner.get("code") or inner.get("type") or "")


def _retry_after(response: Any) -> float | None:
    """Seconds from Retry-After-Ms or Retry-After, which is seconds or a date; None when absent or unreadable."""
    headers = getattr(response, "headers", {})
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            return max(0.0, float(text) * unit)
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
        except ValueError:
            pass
    return None
