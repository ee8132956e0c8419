"""Where a model's requests go, what it can do, and the messages of its failures, never with a credential."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from pytest_toolemu.core.messages import Message, Model, ModelRequest, Reply, ReplySchema, Usage
from pytest_toolemu.errors import ModelError, UsageError
from pytest_toolemu.formats.redaction import REGISTRY, refuse
from pytest_toolemu.formats.text import truncated
from pytest_toolemu.formats.yaml_document import Record, closest
from pytest_toolemu.scheduling.adaptive_limit import Quota
from pytest_toolemu.settings.model_names import FALLBACK, PROVIDERS, provider_of

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
    """A model behind a URL, which can be checked and must be closed."""

    async def preflight(self) -> None:
        """Check that the model is available, for at most one token. UsageError if it is not."""

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
class ModelSpec:
    """A model as the user named it. Without ``base_url``, the environment or the provider's default URL applies."""

    provider: str
    name: str
    base_url: str | None = None

    def __str__(self) -> str:
        return self.label + (f"@{self.base_url}" if self.base_url else "")

    @property
    def label(self) -> str:
        """The model without its URL, for messages that contain the URL anyway."""
        return f"{self.provider}:{self.name}"


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
            failure = self._unreachable(f"did not answer within {seconds:g} s")
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

    def _unreachable(self, problem: str) -> ModelError:
        """Build the error for a missing response."""
        return ModelError(f"{self.spec.label}: {self.base_url} {problem}", transient=True)

    def _failure(self, error: Exception) -> ModelError:
        status: int | None = getattr(error, "status_code", None)
        if status is None:
            cause = self._clean(str(error.__cause__ or error))
            return self._unreachable(f"cannot be reached ({cause}); is a server running there?")
        if status == 401:
            problem = "requires a key" if self.secret is None else f"refused the key in {self.variable}"
            remedy = f"put a valid key in {self.variable}, in the environment or the .env file"
            return ModelError(f"{self.spec.label}: {self.base_url} {problem} (401); {remedy}", status=401)
        delay = retry_after(getattr(getattr(error, "response", None), "headers", {}))
        return self.refusal(status, getattr(error, "body", None), delay, str(error))

    def refusal(self, status: int, body: Any, delay: float | None = None, otherwise: str = "") -> ModelError:
        """Build the error for a refused request from its status and body; ``otherwise`` is the text of an empty body.

        ``delay`` is the pause in seconds that the endpoint asks for.
        """
        text, code = _complaint(body)
        kind = ContentFilterError if status == 400 and code in _FILTERED else ModelError
        return kind(
            f"{self.spec.label}: {self.base_url} answered {status}: {self._clean(text or otherwise)}",
            status=status,
            transient=(status in (408, 409, 429) or status >= 500) and code not in NO_CREDIT,
            retry_after=delay,
        )

    def _clean(self, text: str) -> str:
        return truncated(" ".join(text.split()), _SHOWN)


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


def usage_of(counts: dict[str, Any] | None) -> Usage:
    """Return the tokens that OpenAI (Chat, Responses) or Anthropic states, whose input does not include cached ones.

    A number that is missing, or the -1 of some endpoints, is unknown.
    """
    counts = counts or {}
    of_prompt = counts.get("prompt_tokens_details") or counts.get("input_tokens_details")
    of_output = counts.get("completion_tokens_details") or counts.get("output_tokens_details")
    prompt = _count(counts, "input_tokens", "prompt_tokens")
    output = _count(counts, "output_tokens", "completion_tokens")
    if output is None and prompt is not None and prompt == counts.get("total_tokens"):  # of embeddings
        output = 0
    if prompt is None or output is None:
        return Usage(calls=1, unknown=1)
    read, written = _count(counts, "cache_read_input_tokens") or 0, _count(counts, "cache_creation_input_tokens") or 0
    return Usage(
        input=prompt + read + written,
        output=output,
        cached=read or min(prompt, _count(of_prompt, "cached_tokens") or 0),
        cache_written=written or _count(of_prompt, "cache_write_tokens") or 0,
        reasoning=_count(of_output, "reasoning_tokens", "thinking_tokens") or 0,
        calls=1,
    )


def _count(holder: Any, *names: str) -> int | None:
    values = [holder.get(name) for name in names] if isinstance(holder, dict) else []
    return next((value for value in values if type(value) is int and value >= 0), None)


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
        text = headers.get(name, "")
        with contextlib.suppress(ValueError):
            return max(0.0, float(text) * unit)
        with contextlib.suppress(ValueError):
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return None


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


# The protocol requires a limit. This one has room for thinking and a long answer, and needs no streaming.
ANTHROPIC_MAX_TOKENS: Final = 16_000
# Models with fixed sampling: they refuse a temperature, even the default.
_REASONING: Final = re.compile(r"(ft:)?(o\d|gpt-5)")
FORMS: Final = (
    "write provider:model or provider:model@base_url with openai, anthropic, or vllm as provider, "
    "or a bare gpt-*, o1, o3, chatgpt* (openai), claude* (anthropic), or org/name (vllm); "
    "an agent of your own is written module:function"
)


@dataclass(frozen=True)
class ServedEndpoint:
    """Where a session serves a model itself.

    The port differs between sessions, so identities contain ``recorded_as``, the server's command, instead of the URL.
    """

    url: str
    recorded_as: str


class Parameters(Record):
    """Sampling and limits of every request; parameters that a model does not support are not sent.

    ``max_tokens`` limits one reply. ``timeout`` limits one request, in seconds from connecting to the last byte.
    """

    temperature: float | None = Field(default=0.0, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    timeout: float = Field(default=120.0, gt=0)


def model_identity(spec: ModelSpec, base_url: str | None, parameters: Parameters) -> dict[str, Any]:
    """Return provider, name, base URL, and the parameters that are sent. Needs no SDK, because replaying needs none."""
    temperature, max_tokens = parameters.temperature, parameters.max_tokens
    if spec.provider == "anthropic":
        temperature, max_tokens = None, max_tokens or ANTHROPIC_MAX_TOKENS
    elif spec.provider == "openai" and _REASONING.match(spec.name):
        temperature = None
    return {
        "provider": spec.provider,
        "name": spec.name,
        "base_url": base_url,
        "temperature": temperature,
        "max_tokens": max_tokens,
    }


def parse_spec(text: str, others: Iterable[str] = ()) -> ModelSpec:
    """Parse ``provider:model[@base_url]`` or a bare model name; UsageError lists the forms and names the closest model.

    ``others`` are names that are allowed instead of a model, such as ``checks``.
    """
    refuse(text, "the model")
    if FALLBACK in text:
        raise UsageError(
            f"{text!r} names several models, but only one is possible here; only emulators, evaluators, "
            f"builders, and users can have a fallback A{FALLBACK}B"
        )
    name, *urls = re.split(r"@(?=https?://)", text.strip(), maxsplit=1)
    base_url = check_url(urls[0], f"the model {name!r}") if urls else None
    provider, colon, model = name.partition(":")
    if not colon or provider not in PROVIDERS:
        provider, model = provider_of(name) or "", name
    if "@" in model[1:] and base_url is None:
        raise UsageError(f"{model.partition('@')[0]!r}: the base URL after @ must begin with http:// or https://")
    if not provider or not model or re.search(r"\s", model):
        hint = "" if provider else closest(name.partition(":")[0], PROVIDERS if colon else others)
        raise UsageError(f"{text!r} does not name a model{hint if 'did you mean' in hint else f'; {FORMS}'}")
    return ModelSpec(provider, model, base_url)


def check_url(url: str, source: str) -> str:
    """Return the URL without a trailing slash; UsageError if it is invalid or contains credentials."""
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise UsageError(f"the base URL of {source} is not valid; expected http(s)://host[:port][/path]") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise UsageError(
            f"the base URL of {source} contains a user name, a password, ?, or #, and URLs are recorded; give only "
            "http(s)://host[:port][/path], and put the key in its own variable"
        )
    if parts.scheme not in ("http", "https") or not host or re.search(r"\s", url.strip()):
        raise UsageError(f"the base URL of {source} is {url!r}; expected http(s)://host[:port][/path]")
    return url.strip().rstrip("/")


Messages = tuple[Message, ...]
Body = dict[str, Any]
Build = Callable[[ModelRequest, frozenset[str]], Body]

# If a limit is refused because of its value, the user must change it; dropping it would silently lift the limit.
_LIMITS: Final = frozenset({"max_tokens", "max_completion_tokens"})
_BAD_VALUE: Final = re.compile(r"(?i)too large|exceed|context length|at most|maximum|less than|greater than")
# Parameters that change what a model replies; without the others, a request only costs more or is read less strictly.
_EFFECTIVE: Final = _LIMITS | {"temperature", "seed"}
# Parameters inside messages and tools; they count as sent without a search for them.
_NESTED: Final = frozenset({"strict", "cache_control"})
# Refused schemas, without any accepted one, after which the endpoint is taken not to support schemas.
_MAX_REFUSED_SCHEMAS: Final = 3
_SHORT: Final = 200


class Capabilities:
    """What one endpoint supports, learned during the life of its model."""

    def __init__(self, optional: frozenset[str]) -> None:
        self._optional = optional
        self._refused: frozenset[str] = frozenset()
        self._schemas_refused: dict[str, str] = {}  # each with the endpoint's reason
        self._accepts_schemas = False

    async def negotiate(self, request: ModelRequest, build: Build, send: Callable[[Body], Awaitable[Reply]]) -> Reply:
        """Build and send a request until the endpoint accepts it or rejects something that cannot be left out.

        ``build(request, refused)`` returns the body without the refused parameters. If the endpoint refuses the schema,
        ``build`` gets a request without one, whose messages ask for the schema in words. A request with a schema that
        the endpoint's content filter rejects counts as refused, like a reply that the filter stopped.
        """
        schema, refused = request.schema, self._refused
        constrain = tried = schema is not None and self._may_support(schema)
        complaint = ""
        if schema is not None and not tried:  # the reason for another schema, if the endpoint never got this one
            complaint = self._schemas_refused.get(_key(schema)) or next(iter(self._schemas_refused.values()))
        while True:
            sent_request = request if constrain else with_schema_in_words(request)
            body = build(sent_request, refused)
            sent_options = {name for name in self._optional - refused if name in body or name in _NESTED}
            try:
                reply = await send(body)
            except ContentFilterError as error:
                if schema is None:
                    raise
                return Reply(stop="refusal", stop_detail=str(error), usage=Usage(calls=1))
            except ModelError as error:
                if named_options := _named(error, sent_options):
                    refused |= named_options
                elif constrain and error.status in (400, 404, 422):
                    constrain = False
                    complaint = f"the endpoint answered {_answer(error)[:_SHORT]}"
                else:
                    raise
                continue
            # Only a success without the parameters proves that they were the cause of the refusal.
            self._refused |= refused
            if schema is not None and tried and complaint:
                self._schemas_refused[_key(schema)] = complaint
            self._accepts_schemas |= tried and not complaint
            left_out = _left_out(build(sent_request, frozenset()), body) if refused else ()
            return reply.model_copy(update={"schema_fallback": complaint, "refused_parameters": left_out})

    def _may_support(self, schema: ReplySchema) -> bool:
        # One refusal may be due to that schema; several refusals without a success are due to the endpoint.
        return _key(schema) not in self._schemas_refused and (
            self._accepts_schemas or len(self._schemas_refused) < _MAX_REFUSED_SCHEMAS
        )


def with_schema_in_words(request: ModelRequest) -> ModelRequest:
    """Move a request's schema into its messages: after the system prompt, where caches keep it, or at the end."""
    messages, schema = request.messages, request.schema
    if schema is None:
        return request
    instruction = (
        "Reply with one JSON value and nothing else: no code fence, nothing before or after it. "
        "It must conform to this JSON Schema:\n"
        + json.dumps({**schema.schema_, "title": schema.name}, ensure_ascii=False)
    )
    index = 0 if messages and messages[0].role == "system" else len(messages) - 1
    if messages and messages[index].role in ("system", "user"):
        original = messages[index]
        extended = original.model_copy(update={"content": f"{original.content}\n\n{instruction}"})
        messages = (*messages[:index], extended, *messages[index + 1 :])
    else:
        messages = (*messages, Message(role="user", content=instruction))
    return replace(request, messages=messages, schema=None)


def as_object(arguments: str) -> dict[str, Any]:
    """Return a call's arguments in the form that endpoints accept in a conversation: an object, even if invalid."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


def tool_name(name: str) -> str:
    """Return a called name in the form that endpoints accept in a conversation, even if no tool has this name."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "_"


def unicode(text: str | None) -> str:
    """Replace lone surrogates, which some endpoints produce by cutting a character in two."""
    return (text or "").encode("utf-8", "replace").decode("utf-8")


def _left_out(whole: Body, sent: Body) -> tuple[str, ...]:
    """Return the parameters that change the reply and were not sent; a limit counts as sent under its other name."""
    sent_names = sent.keys() | (_LIMITS if _LIMITS & sent.keys() else frozenset())
    return tuple(sorted(_EFFECTIVE & whole.keys() - sent_names))


def _key(schema: ReplySchema) -> str:
    return json.dumps(schema.schema_, ensure_ascii=False)


def _answer(error: ModelError) -> str:
    """Return the text of the endpoint. The model's name, which comes before it, may contain any word."""
    return str(error).partition(" answered ")[2]


def _named(error: ModelError, sent_options: set[str]) -> set[str]:
    if error.status not in (400, 422):
        return set()
    text = _answer(error)
    named_options = {name for name in sent_options if re.search(rf"\b{name}\b", text)}
    return named_options - _LIMITS if _BAD_VALUE.search(text) else named_options
