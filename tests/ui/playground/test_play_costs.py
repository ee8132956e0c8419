"""The tokens and the cost of a play are shown where a model was asked."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from pytest_toolemu.errors import UsageError
from pytest_toolemu.ui.play import Play, play_cost, play_costs
from pytest_toolemu.ui.playground import Playground
from tests.loopback import Call, Reply, replies
from tests.loopback.fixtures import Loopback
from tests.ui.applications import client_of
from tests.ui.playground.conftest import begun, settled

PRICES = """
prices:
  - provider: openai
    models: {loopback: {input: 1, output: 2}}
    source: a test
    checked: 2026-11
"""
SEARCH = Reply(calls=(Call("BankManager_SearchPayee", {"name": "Anna"}),))


@pytest.fixture
def agent(loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an agent that calls a tool twice, and then answers."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-loopback")
    return f"openai:loopback@{loopback(replies([SEARCH, SEARCH, 'Anna.', 'Nobody.'])).url}"


def test_a_play_shows_what_its_models_cost_and_a_fork_what_it_repeats(
    playground: Playground, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("prices.yaml").write_text(PRICES)
    monkeypatch.setenv("TOOLEMU_PRICES", "prices.yaml")
    play = begun(playground, agent=agent)
    texts = [f"{role}: {cost}" for role, cost in play_costs(play).items()]
    assert texts == ["agent: 3 requests, 45 tokens, 0.00006 USD"]
    fork = settled(playground.fork(play, 1, {"payees": [], "more": False}))
    cost = play_cost(fork)
    assert cost == "1 request, 15 tokens, 0.00002 USD, 2 repeated requests at no cost"


def test_unknown_costs_are_not_zero(playground: Playground, agent: str) -> None:
    cost = play_cost(begun(playground, agent=agent))
    assert cost.endswith(" tokens, cost unknown")
    assert play_cost(begun(playground)) == ""


def test_prices_that_are_not_valid_are_refused_before_a_model_is_asked(
    playground: Playground, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("prices.yaml").write_text("prices: 3\n")
    monkeypatch.setenv("TOOLEMU_PRICES", "prices.yaml")
    with pytest.raises(UsageError, match=r"prices\.yaml:1:9: "):
        begun(playground, agent=agent)


def test_costs_are_on_the_page_of_a_play_and_in_the_list(
    tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    client = client_of(tmp_path)
    with closing(client.app.state.ui.playground) as playground:  # type: ignore[attr-defined]
        check_pages(client, begun(playground, agent=agent))


def check_pages(client: TestClient, play: Play) -> None:
    cost = play_cost(play)
    assert f"<dt>Agent</dt><dd>{cost}</dd>" in client.get(f"/playground/plays/{play.id}").text
    assert cost in client.get("/playground").text
