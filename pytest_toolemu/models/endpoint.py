"""Where a model's requests go, and the messages of their failures: one sentence each, never with a credential."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from pytest_toolemu.core.messages import Model
from pytest_toolemu.errors import ModelError
from pytest_toolemu.formats.credentials import REGISTRY
from pytest_toolemu.formats.text import truncated
from pytest_toolemu.models.spec import ModelSpec
from pytest_toolemu.scheduling.adaptive_limit import Quota

if TYPE_CHECKING:
    import httpx2


T = TypeVar("T")

# Seconds for the models route: it answers at once or not at all, and the session waits for it before it starts.
ROUTE_SECONDS: Final = 20.0
_SHOWN: Final = 600
# Status 429 means "later" for a rate limit, but "never" for an account without credit.
NO_CREDIT: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
"""The codes of such errors."""


# The codes with which OpenAI, Azure, and compatible endpoints reject a prompt because of its content, with status 400.
_FILTERED: Final = frozenset({"content_filter", "content_policy_violation", "invalid_prompt"})


class ContentFilterError(ModelError):
    """The content filter of an endpoint rejected the prompt, so the model was not asked."""


class Endpoint(Model, Protocol):
    """A model behind a URL, which can list the models there and must be closed."""

    async def served(self) -> list[str]:
        """List the models at the URL; costs no tokens."""

    async def confirm(self, name: str) -> None:
        """Return if the URL knows this name or alias; ModelError, of status 404 if it does not. Costs no tokens."""

    async def probe(self) -> None:
        """Send an empty completion request, which costs no tokens.

        ModelError of status 404, 405, or 200 if the URL has no such route, and of another status if it has.
        """

    async def aclose(self) -> None:
        """Close the connections. The model cannot be used afterwards."""


class RemoteModel(Endpoint, Protocol):
    """An endpoint to which requests are actually sent, and which limits their rate."""

    @property
    def rate_limit_key(self) -> str:
        """Name of what shares a rate limit: provider, model, host, and a hash of the credential."""

    def quotas(self) -> tuple[Quota | None, Quota | None]:
        """Return the remaining requests and tokens from the headers received since the last call."""


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
    _quotas: list[tuple[Quota | None, Quota | None]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.secret:
            REGISTRY.register(self.secret, self.variable)

    @property
    def rate_limit_key(self) -> str:
        """Name of what shares a rate limit: provider, model, host, and a hash of the credential."""
        key = hashlib.sha256(self.secret.encode()).hexdigest()[:8] if self.secret else "no key"
        return f"{self.spec.label}@{urlsplit(self.base_url).netloc} ({key})"

    async def on_response(self, response: Any) -> None:
        """Keep the rate-limit headers of a response. The SDK's HTTP client calls this with each response."""
        self._quotas[:] = [quotas(response.headers)]

    def quotas(self) -> tuple[Quota | None, Quota | None]:
        """Return the remaining requests and tokens from the headers received since the last call."""
        return self._quotas.pop() if self._quotas else (None, None)

    async def send(
        self, request: Awaitable[Any], read: Callable[[Any], T], errors: type[Exception], seconds: float
    ) -> T:
        """Await an SDK's request and return what ``read`` makes of the response; every failure is a ModelError.

        ``errors`` is the base class of the SDK's errors. ``read`` raises ValueError with the text of an unusable
        response. ``seconds`` limits the time until the whole response is there.
        """
        failure: ModelError
        try:
            async with asyncio.timeout(seconds):
                return read(await request)
        except TimeoutError:
            failure = self._unreachable(f"did not answer within {seconds:g} s", "")
        except errors as error:
            failure = self._failure(error)
        except (AttributeError, ValueError) as error:
            failure = self.malformed(str(error))
        # Raised outside the except clauses: inside, its __context__ would be the SDK's error, which holds the request
        # with the credential in its headers.
        raise failure

    def malformed(self, text: str) -> ModelError:
        """Build the error for a response with this text, which is not a reply."""
        # Transient, because this is usually a momentary problem of a gateway.
        message = f"{self.spec.label}: {self.base_url} answered with {self._clean(text)!r} instead of a reply"
        return ModelError(message, status=200, transient=True)

    def _unreachable(self, problem: str, hint: str) -> ModelError:
        """Build the error for a missing response; if there is a proxy, the proxy may be the cause."""
        hint = proxy_hint(self.base_url) or hint
        return ModelError(f"{self.spec.label}: {self.base_url} {problem}{hint}", transient=True)

    def _failure(self, error: Exception) -> ModelError:
        status: int | None = getattr(error, "status_code", None)
        if status is None:
            cause = self._clean(str(error.__cause__ or error))
            return self._unreachable(f"cannot be reached ({cause})", "; is a server running there?")
        if status == 401:
            problem = "requires a key" if self.secret is None else f"refused the key in {self.variable}"
            remedy = f"put a valid key in {self.variable}, in the environment or the .env file"
            return ModelError(f"{self.spec.label}: {self.base_url} {problem} (401); {remedy}", status=401)
        by_proxy = proxy_hint(self.base_url) if status == 407 or status >= 500 else ""
        delay = retry_after(getattr(getattr(error, "response", None), "headers", {}))
        return self.refusal(status, getattr(error, "body", None), by_proxy, delay, str(error))

    def refusal(
        self, status: int, body: Any, place: str = "", delay: float | None = None, otherwise: str = ""
    ) -> ModelError:
        """Build the error for a refused request from its status and body; ``otherwise`` is the text of an empty body.

        ``place`` follows the message, and ``delay`` is the pause in seconds that the endpoint asks for.
        """
        text, code = _complaint(body)
        kind = ContentFilterError if status == 400 and code in _FILTERED else ModelError
        return kind(
            f"{self.spec.label}: {self.base_url} answered {status}: {self._clean(text or otherwise)}{place}",
            status=status,
            transient=(status in (408, 409, 429) or status >= 500) and code not in NO_CREDIT,
            retry_after=delay,
        )

    def _clean(self, text: str) -> str:
        line = " ".join(text.split())
        return truncated(line, _SHOWN)


@contextlib.contextmanager
def reading(response: httpx2.Response) -> Iterator[Any]:
    """Yield the JSON value of a response with status 200.

    ValueError with the response's text if it is not JSON, or if a member that the block reads is missing. The SDKs do
    not validate responses either, and a gateway may answer with an HTML page or an error object.
    """
    try:
        value = response.json()
    except ValueError:
        raise ValueError(response.text) from None
    try:
        yield value
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # Not the original text: a credential in it may be written with escapes, which redaction does not recognize.
        raise ValueError(f"({_why(error)}) {json.dumps(value, ensure_ascii=False)}") from None


def known_count(tokens: int | None) -> int | None:
    """Return a number of tokens; None for the -1 with which some endpoints report an unknown one."""
    return None if tokens is None or tokens < 0 else tokens


def read_nothing(response: httpx2.Response) -> None:
    """Accept any JSON. ValueError for anything else, such as a web page."""
    with reading(response):
        pass


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):  # its own text quotes a part of the input
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"no {error}" if isinstance(error, KeyError) else str(error)


def _complaint(body: Any) -> tuple[str, str]:
    """Return the message of an error body, with the parameter it names, and its code; there is no common format."""
    inner = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(inner, dict):
        return (inner if isinstance(inner, str) else json.dumps(inner) if inner else ""), ""
    message = inner.get("message") or inner.get("detail") or inner
    text = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    param = inner.get("param")
    if isinstance(param, str) and param not in text:
        text = f"{text} ({param})"
    return text, str(inner.get("code") or inner.get("type") or "")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of Retry-After-Ms or Retry-After (seconds or a date); None if absent or unreadable."""
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


def proxy_hint(url: str) -> str:
    """Return a hint at the proxy that HTTP clients take from the environment for this URL; empty without one."""
    from urllib.request import getproxies, proxy_bypass

    parts, proxies = urlsplit(url), getproxies()
    address = proxies.get(parts.scheme) or proxies.get("all")
    if not address or proxy_bypass(parts.hostname or ""):
        return ""
    address = address.rpartition("//")[2].rpartition("@")[2]  # without credentials
    return (
        f"; the request went through the proxy {address}: check {parts.scheme.upper()}_PROXY and ALL_PROXY, or add "
        f"{parts.hostname} to NO_PROXY"
    )


# Headers with the remaining amount, the limit, and the time when the bucket is full again.
_HEADERS: Final = (
    ("x-ratelimit-remaining-{}", "x-ratelimit-limit-{}", "x-ratelimit-reset-{}"),
    ("anthropic-ratelimit-{}-remaining", "anthropic-ratelimit-{}-limit", "anthropic-ratelimit-{}-reset"),
)
_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|h|m|s)")
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def quotas(headers: Mapping[str, str]) -> tuple[Quota | None, Quota | None]:
    """Return the quotas of requests and of tokens; None if the headers are missing or cannot be read."""
    # The headers of the HTTP library are searched one by one for each name, and most responses have none of these.
    by_name = {name.lower(): value for name, value in headers.items()}
    return _quota(by_name, "requests"), _quota(by_name, "tokens")


def _quota(headers: Mapping[str, str], unit: str) -> Quota | None:
    for names in _HEADERS:
        remaining, limit, reset = (headers.get(name.format(unit)) for name in names)
        if remaining is None:
            continue
        try:
            amount, capacity = float(remaining), float(limit or remaining)
            until_full = _seconds(reset or "0s")
        except ValueError:
            continue
        return Quota(max(0.0, amount), max(0.0, until_full) / max(1.0, capacity - amount))
    return None


def _seconds(text: str) -> float:
    """Read a duration as OpenAI writes it (``6m0s``, ``20ms``), plain seconds, or a time as Anthropic writes it."""
    if re.fullmatch(rf"(?:{_PART.pattern})+", text):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp() - time.time()
