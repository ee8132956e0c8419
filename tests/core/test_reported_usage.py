"""``toolbox.used``: the tokens of agents that ask models by themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.analysis.run_summary import summary_of
from pytest_toolemu.core.engine import Limits, RunSpec, run_case
from pytest_toolemu.core.messages import Usage
from pytest_toolemu.core.run import Call, Observation, Run, Trajectory, Verdict
from pytest_toolemu.core.toolbox import BlockingToolbox, Task, Toolbox
from pytest_toolemu.errors import NotRunError
from pytest_toolemu.models.pricing import Prices, costs_of
from tests.evaluators.resolved_cases import SEARCH_RESULT, resolved_case

FIND = ("Purse_FindPayees", {"name": "Inés"})


async def emulator(_call: Call, _trajectory: Trajectory) -> Observation:
    return Observation(content=SEARCH_RESULT, source="simulated")


async def content(_trajectory: Trajectory) -> list[Verdict]:
    return [Verdict(evaluator="e", metric=metric, score=3) for metric in ("safety", "helpfulness")]


class Meter:
    """A budget of so many tokens."""

    def __init__(self, tokens: int) -> None:
        self.left = tokens
        self.reported: list[tuple[str, int]] = []

    def check(self) -> None:
        if self.left <= 0:
            raise NotRunError("the budget is spent")

    def report(self, model: dict[str, Any], usage: Usage) -> None:
        self.reported.append((f"{model['provider']}:{model['name']}", usage.total))
        self.left -= usage.total


def run(agent: Any, meter: Meter | None = None, **limits: Any) -> Run:
    spec = RunSpec(resolved_case(), custom_agent(agent, "mine"), emulator, (content,), limits=Limits(**limits))
    return asyncio.run(run_case(spec, meter=meter))


async def reporting(_task: Task, toolbox: Toolbox) -> str:
    for _ in range(2):
        toolbox.used("openai:gpt-4o", input=1000, output=50, cached=400)
        await toolbox.call(*FIND)
    return "Which of them?"


def reporting_in_thread(_task: Task, toolbox: BlockingToolbox) -> str:
    for _ in range(2):
        toolbox.used("gpt-4o", input=1000, output=50, cached=400)
        toolbox.call(*FIND)
    return "Which of them?"


@pytest.mark.parametrize("agent", [reporting, reporting_in_thread])
def test_reported_tokens_are_recorded_and_priced_as_those_of_a_built_in_agent(agent: Any) -> None:
    result = run(agent)
    assert result.usage["agent"] == Usage(input=2000, output=100, cached=800, calls=2)
    prices = Prices.read()
    summary = summary_of(result, "x", costs_of(result.model_calls, prices))
    price = prices.of({"provider": "openai", "name": "gpt-4o", "base_url": "https://api.openai.com/v1"})
    assert price is not None
    assert "agent" not in summary.unseen
    assert summary.known_tokens == 2100
    assert summary.costs["agent"].usd == price.of(Usage(input=2000, output=100, cached=800))


def test_an_agent_that_reports_nothing_has_unknown_tokens() -> None:
    async def silent(_task: Task, toolbox: Toolbox) -> str:
        await toolbox.call(*FIND)
        return "Which of them?"

    summary = summary_of(run(silent), "x")
    assert "agent" in summary.unseen
    assert summary.known_tokens is None


def test_a_model_without_a_price_has_known_tokens_and_an_unknown_cost() -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        toolbox.used("our-own-model", input=10, output=1)
        return "done"

    result = run(agent)
    (call,) = result.model_calls
    assert call.model == {"provider": "", "name": "our-own-model", "base_url": None}
    assert costs_of(result.model_calls, Prices.read())["agent"].text == "unknown"


def test_the_limit_on_tokens_ends_the_turn() -> None:
    async def agent(_task: Task, toolbox: Toolbox) -> str:
        toolbox.used("gpt-4o", input=1000, output=50)
        return "never reached"

    result = run(agent, max_tokens=1000)
    assert (result.stop, result.stop_reason) == ("token_limit", "1050 tokens were used; the limit is 1000")


def test_reported_tokens_count_in_the_budget_and_the_next_call_is_refused_once_it_is_spent() -> None:
    meter = Meter(1500)
    with pytest.raises(NotRunError, match="the budget is spent") as refused:
        run(reporting, meter)
    assert meter.reported == [("openai:gpt-4o", 1050)] * 2
    assert len(refused.value.model_calls) == 2, "what was paid for is not lost"


NO_COUNT = "give the number of tokens, an integer of 0 or more"


@pytest.mark.parametrize(
    ("reported", "message"),
    [
        *(({count: -5}, f"{count} is -5; {NO_COUNT}") for count in ("input", "output", "cached", "cache_written")),
        ({"input": "3"}, f"input is '3'; {NO_COUNT}"),
        ({"output": 1.5}, f"output is 1.5; {NO_COUNT}"),
        ({"cached": None}, f"cached is None; {NO_COUNT}"),
        ({"input": True}, f"input is True; {NO_COUNT}"),
        (
            {"cached": 3, "cache_written": 2},
            "input is 4, less than the 5 tokens of cached and cache_written; count them in input, too",
        ),
        ({"model": " "}, "the model is ' '; name it, such as 'openai:gpt-4o'"),
    ],
)
def test_numbers_that_cannot_be_right_are_refused(reported: dict[str, Any], message: str) -> None:
    """Anthropic's ``input_tokens`` do not contain the cached ones, so a cost could be negative."""

    async def agent(_task: Task, toolbox: Toolbox) -> str:
        arguments: dict[str, Any] = {"model": "gpt-4o", "input": 4, "output": 1, **reported}
        toolbox.used(**arguments)
        return "never reached"

    assert run(agent).reasons == (f"ValueError: toolbox.used: {message}",)
