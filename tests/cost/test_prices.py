from __future__ import annotations

from pathlib import Path

import pytest

from pytest_toolemu.core.messages import Ledger, ModelCall, Reply, Usage
from pytest_toolemu.errors import DocumentError
from pytest_toolemu.formats.text import usd_text
from pytest_toolemu.models.pricing import Cost, Price, Prices, costs_of
from pytest_toolemu.settings.model_names import OFFICIAL_URLS

GPT = {"provider": "openai", "name": "gpt-4o", "base_url": OFFICIAL_URLS["openai"]}
OWN = """\
prices:
  - provider: openai
    source: our contract
    checked: "2026-11-02"
    models:
      gpt-4o: {input: 1, output: 2}
      mine-*: {input: 0, output: 0}
"""


def million(**tokens: int) -> Usage:
    return Usage(calls=1, **{name: 1_000_000 * count for name, count in tokens.items()})


def own(tmp_path: Path, text: str = OWN) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    return path


def test_the_cost_of_a_request_includes_fresh_cached_written_and_output_tokens() -> None:
    price = Price(input=4.0, output=20.0, cached=0.5, cache_written=5.0)
    assert price.of(million(input=4, cached=2, cache_written=1, output=1)) == 4 + 2 * 0.5 + 5 + 20


def test_cached_tokens_without_a_price_cost_as_much_as_others() -> None:
    assert Price(input=4.0, output=20.0).of(million(input=4, cached=2, cache_written=1)) == 16


def test_an_unknown_price_is_not_zero() -> None:
    assert Price(input=4.0, output=20.0).of(Usage(calls=1, unknown=1)) is None
    assert Price(input=4.0, output=20.0, up_to=999_999).of(million(input=1)) is None


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_requests_in_batches_cost_half(provider: str) -> None:
    name = {"openai": "gpt-4o", "anthropic": "claude-sonnet-5-5"}[provider]
    identity = {"provider": provider, "name": name, "base_url": OFFICIAL_URLS[provider]}
    single, batched = Prices.read().of(identity), Prices.read().of(identity, batch=True)
    assert single is not None
    assert batched == single.times(0.5)
    usage = million(input=4, cached=2, cache_written=1, output=1)
    assert 2 * (batched.of(usage) or 0) == single.of(usage)
    reply = Reply(usage=usage, batch="batch_1")
    call = ModelCall(role="evaluator", model=identity, messages=(), reply=reply, started=0, seconds=0)
    assert costs_of([call], Prices.read())["evaluator"].usd == batched.of(usage)


def test_the_cost_of_lost_attempts_is_unknown() -> None:
    reply = Reply(usage=million(input=1), lost_attempts=2)
    call = ModelCall(role="agent", model=GPT, messages=(), reply=reply, started=0, seconds=0)
    cost = costs_of([call], Prices.read())["agent"]
    assert (cost.text, cost.calls, cost.unknown) == ("at least 2.50", 3, 2)
    ledger = Ledger()
    ledger.model_calls.append(call)
    assert ledger.usage() == Usage(input=1_000_000, calls=3, unknown=2)


def test_the_price_of_batches_is_unknown_without_their_factor(tmp_path: Path) -> None:
    prices = Prices.read(own(tmp_path))
    assert prices.of(GPT) == Price(input=1, output=2)
    assert prices.of(GPT, batch=True) is None


@pytest.mark.parametrize("name", ["gpt-4o", "gpt-4o-2024-08-06"])
def test_a_price_applies_to_dated_versions_of_a_model(name: str) -> None:
    assert Prices.read().of(GPT | {"name": name}) == Price(input=2.5, output=10.0, cached=1.25)


@pytest.mark.parametrize("name", ["claude-sonnet-4", "claude-sonnet-4-20250514", "claude-sonnet-4-5-latest"])
def test_prices_apply_to_both_forms_of_anthropic_names(name: str) -> None:
    price = Prices.read().of({"provider": "anthropic", "name": name, "base_url": OFFICIAL_URLS["anthropic"]})
    assert price is not None
    assert (price.input, price.cached, price.cache_written, price.output) == (3, 0.3, 3.75, 15)


@pytest.mark.parametrize(
    "other",
    [{"name": "gpt-4o-of-mine"}, {"base_url": "http://localhost:8000/v1"}, {"provider": "vllm"}],
)
def test_another_name_another_url_or_another_provider_has_no_known_price(other: dict[str, str]) -> None:
    assert Prices.read().of(GPT | other) is None


def test_every_shipped_list_states_its_source_and_date() -> None:
    for listed in Prices.read().lists:
        assert listed.source.startswith("https://")
        assert listed.checked >= "2026-11"
        assert listed.base_url
        assert all(price.output > price.input > 0 for price in listed.models.values())


def test_a_user_s_price_file_takes_precedence_over_the_shipped_prices(tmp_path: Path) -> None:
    prices = Prices.read(own(tmp_path))
    assert prices.of(GPT) == Price(input=1.0, output=2.0)
    assert prices.of(GPT | {"name": "mine-7", "base_url": "http://localhost:1"}) == Price(input=0.0, output=0.0)
    assert prices.of(GPT | {"name": "gpt-4.1"}) == Price(input=2.0, output=8.0, cached=0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OWN.replace("output: 2", "outptu: 2"), r"prices.yaml:6:26: unknown key 'outptu'; did you mean 'output'\?"),
        (OWN.replace("input: 1", "input: -1"), r"prices.yaml:6:23: .*-1: expected a number that is at least 0"),
        (OWN.replace("    source: our contract\n", ""), r"prices.yaml:2:5: the key 'source' is missing"),
    ],
)
def test_an_invalid_price_file_is_reported_with_the_location(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        Prices.read(own(tmp_path, text))


def exchange(role: str, usage: Usage | None, **model: str) -> ModelCall:
    reply = None if usage is None else Reply(usage=usage)
    return ModelCall(role=role, model=GPT | model, messages=(), reply=reply, started=0.0, seconds=0.0)  # type: ignore[arg-type]


def test_costs_are_added_up_by_role() -> None:
    usage = Usage(input=1000, output=100, calls=1)
    costs = costs_of(
        [exchange("agent", usage), exchange("agent", usage), exchange("evaluator", usage, name="mine")], Prices.read()
    )
    assert costs["agent"] == Cost(calls=2, input=2000, output=200, usd=2 * 0.0035)
    assert costs["evaluator"] == Cost(calls=1, unknown=1, input=1000, output=100)
    assert costs["agent"].text == "0.007"
    assert costs["evaluator"].text == "unknown"
    assert (costs["agent"] + costs["evaluator"]).text == "at least 0.007"
    assert Cost().text == "0"


def test_a_request_without_a_reply_makes_the_cost_a_lower_bound() -> None:
    usage = Usage(input=1_000_000, calls=1)
    assert costs_of([exchange("agent", usage), exchange("agent", None)], Prices.read())["agent"].text == "at least 2.50"


def test_usd_are_shown_with_significant_digits() -> None:
    assert [usd_text(usd) for usd in (1234.5, 0.5, 0.0123, 0.0000456, 0)] == [
        "1,234.50",
        "0.50",
        "0.012",
        "0.000046",
        "0",
    ]
