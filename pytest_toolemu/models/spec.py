"""Parse model names as users write them, and the parameters that every request to a model has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import Field

from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.credentials import refuse
from pytest_toolemu.formats.yaml_document import Record, closest
from pytest_toolemu.settings.model_names import FALLBACK, PROVIDERS, provider_of

# The protocol requires a limit. This one has room for thinking and a long answer, and needs no streaming.
ANTHROPIC_MAX_TOKENS: Final = 16_000
# Models with fixed sampling: they refuse a temperature, even the default.
_REASONING: Final = re.compile(r"(ft:)?(o\d|gpt-5)")
FORMS: Final = (
    "write provider:model or provider:model@base_url with openai, anthropic, or vllm as provider, "
    "or a bare gpt-*, o1, o3, chatgpt* (openai), claude* (anthropic), or org/name (vllm)"
)


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
        candidates = PROVIDERS if colon and not name.startswith("reference") else (*others, *_priced())
        hint = closest(name.partition(":")[0] if candidates is PROVIDERS else name, candidates)
        is_near = "did you mean" in hint and name.partition(":")[0] not in PROVIDERS
        raise UsageError(f"{text!r} does not name a model{hint if is_near else f'; {FORMS}'}")
    return ModelSpec(provider, model, base_url)


def _priced() -> list[str]:
    """List the models of the shipped prices: the models that most people use."""
    from pytest_toolemu.models.pricing import Prices

    names = (name for prices in Prices.read().lists for name in prices.models)
    return [name for name in names if "*" not in name]


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
