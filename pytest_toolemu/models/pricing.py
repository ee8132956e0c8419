"""Prices of models from a dated file, and the cost of requests. An unknown cost is never counted as zero."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from pytest_toolemu.core.messages import ModelCall, Role, Usage
from pytest_toolemu.formats.text import sum_text, usd_text
from pytest_toolemu.formats.yaml_document import Document, Record

_MILLION: Final = 1_000_000
_DATED: Final = re.compile(r"-(\d{4}-?\d{2}-?\d{2}|latest)$")


class Price(Record):
    """The price of one model, in USD per million tokens."""

    input: float = Field(ge=0, description="Prompt tokens, in USD per million")
    output: float = Field(ge=0, description="Output tokens, in USD per million")
    cached: float | None = Field(default=None, ge=0, description="Prompt tokens from the cache; default: 'input'")
    cache_written: float | None = Field(default=None, ge=0, description="Tokens written to it; default: 'input'")
    up_to: int | None = Field(default=None, ge=1, description="Longest prompt, in tokens, whose cost is known")

    def of(self, usage: Usage) -> float | None:
        """Return the USD for one request; None if its usage, or the price for such a long prompt, is unknown."""
        if usage.unknown or (self.up_to is not None and usage.input > self.up_to):
            return None
        cached = self.input if self.cached is None else self.cached
        write_price = self.input if self.cache_written is None else self.cache_written
        fresh = max(0, usage.input - usage.cached - usage.cache_written)
        parts = ((fresh, self.input), (usage.cached, cached), (usage.cache_written, write_price))
        return (sum(tokens * price for tokens, price in parts) + usage.output * self.output) / _MILLION

    def times(self, factor: float) -> Price:
        """Return all prices multiplied by a factor."""
        prices = {name: getattr(self, name) for name in ("input", "output", "cached", "cache_written")}
        return self.model_copy(update={name: price and price * factor for name, price in prices.items()})


class BatchPrice(Record):
    """What requests in a provider's batches cost, relative to its other requests."""

    factor: float = Field(gt=0, le=1, description="Price in a batch, divided by the normal price")
    source: str = Field(min_length=1, description="Where the factor comes from")


class PriceList(Record):
    """The prices of the models of one provider."""

    provider: str = Field(description="The provider as in model names: openai, anthropic, or vllm")
    models: dict[str, Price] = Field(description="Prices by the name of the model, which may have wildcards * and ?")
    base_url: str | None = Field(default=None, description="Base URL, with wildcards; if absent, any URL")
    source: str = Field(min_length=1, description="Where the prices come from")
    checked: str = Field(
        pattern=r"^\d{4}-\d{2}(-\d{2})?$", description="When they were checked: YYYY-MM or 'YYYY-MM-DD'"
    )
    batch: BatchPrice | None = Field(default=None, description="The price of batches; unknown if absent")

    def price(self, identity: Mapping[str, Any]) -> Price | None:
        """Return the price of a model, by the provider, name, and base URL of its identity."""
        name, url = str(identity.get("name", "")), str(identity.get("base_url") or "")
        if identity.get("provider") != self.provider:
            return None
        if self.base_url is not None and not fnmatch.fnmatchcase(url, self.base_url):
            return None
        names = (name, _DATED.sub("", name))
        matching = (
            price for pattern, price in self.models.items() if any(fnmatch.fnmatchcase(name, pattern) for name in names)
        )
        return next(matching, None)


class PriceFile(Record):
    """A file of prices. Its lists take precedence over the shipped ones."""

    prices: tuple[PriceList, ...] = Field(description="Lists of prices; the first one that has the model applies")


@dataclass(frozen=True)
class Prices:
    """Price lists; the first one with a price for a model applies."""

    lists: tuple[PriceList, ...]
    _known: dict[tuple[object, ...], Price | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, user_file: Path | None = None) -> Prices:
        """Read the user's prices, which take precedence, and the shipped ones; DocumentError for an invalid file."""
        return cls.with_shipped(Document.read(user_file).build(PriceFile).prices if user_file else ())

    @classmethod
    def with_shipped(cls, lists: Iterable[PriceList]) -> Prices:
        """Return these lists, which take precedence, and the shipped ones."""
        return cls((*lists, *_shipped()))

    @property
    def of_user(self) -> tuple[PriceList, ...]:
        """The lists without the shipped ones."""
        return tuple(listed for listed in self.lists if not any(listed is shipped for shipped in _shipped()))

    def of(self, identity: Mapping[str, Any], *, batch: bool = False) -> Price | None:
        """Return the price of a model, in batches or else in single requests; None if no list has one."""
        # Cached: a report calls this for ten thousand requests to three models.
        key = (*(str(identity.get(name)) for name in ("provider", "name", "base_url")), batch)
        if key not in self._known:
            listed = self.listing(identity)
            price = listed.price(identity) if listed else None
            if listed and price and batch:
                price = price.times(listed.batch.factor) if listed.batch else None
            self._known[key] = price
        return self._known[key]

    def listing(self, identity: Mapping[str, Any]) -> PriceList | None:
        """Return the list that has the price of a model."""
        return next((each for each in self.lists if each.price(identity)), None)


@functools.cache
def _shipped() -> tuple[PriceList, ...]:
    name = "prices.yaml"
    text = (resources.files(__package__) / name).read_text(encoding="utf-8")
    return Document.parse(text, Path(name)).build(PriceFile).prices


@dataclass(frozen=True)
class Cost:
    """Tokens and cost of a number of requests.

    ``unknown`` counts the ``calls`` whose cost is unknown. ``unseen`` counts the runs whose requests were not recorded:
    those of custom agents, and imported ones. If either is not zero, the other fields are lower bounds.
    """

    calls: Annotated[int, Field(description="Number of requests")] = 0
    unknown: Annotated[int, Field(description="Number of requests whose cost is unknown")] = 0
    input: Annotated[int, Field(description="Tokens of all prompts")] = 0
    cached: Annotated[int, Field(description="Tokens of prompts that came from the provider's cache")] = 0
    output: Annotated[int, Field(description="Generated tokens")] = 0
    usd: Annotated[float, Field(description="Cost in USD")] = 0.0
    unseen: Annotated[int, Field(description="Number of runs whose requests were not recorded")] = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    @property
    def known_usd(self) -> float | None:
        """USD, a lower bound if a part is unknown; None if everything is unknown."""
        return None if (self.unknown or self.unseen) and self.unknown == self.calls else self.usd

    @property
    def text(self) -> str:
        """Text such as ``1.25``, ``at least 1.25`` if a part is unknown, or ``unknown``."""
        incomplete = bool(self.unknown or self.unseen)
        return sum_text(usd_text(self.usd), nothing_known=self.known_usd is None, incomplete=incomplete)


def usd_for_budget(price: Price | None, usage: Usage) -> float | None:
    """Return the USD that a request counts for against a budget; None if the model has no known price.

    A prompt that is longer than the price is known for costs at least as much as the price says.
    """
    usd = price.of(usage) if price else None
    return price.model_copy(update={"up_to": None}).of(usage) if price and usd is None else usd


def costs_of(calls: Iterable[ModelCall], prices: Prices) -> dict[Role, Cost]:
    """Return the cost of each role. A request or attempt without a reply may have cost something: unknown."""
    costs: dict[Role, Cost] = {}
    for call in calls:
        usage = call.reply.usage if call.reply else Usage(calls=1, unknown=1)
        price = prices.of(call.model, batch=bool(call.reply and call.reply.batch))
        usd = price.of(usage) if price else None
        lost = call.reply.lost_attempts if call.reply else 0
        cost = Cost(1 + lost, (usd is None) + lost, usage.input, usage.cached, usage.output, usd or 0.0)
        costs[call.role] = costs.get(call.role, Cost()) + cost
    return costs
