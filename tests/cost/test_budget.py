from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pytest_toolemu.core.messages import Message, ModelRequest, Reply, Usage
from pytest_toolemu.errors import ModelError, NotRunError
from pytest_toolemu.models.pricing import Price
from pytest_toolemu.models.retrying import BudgetedModel
from pytest_toolemu.scheduling.budget import Budget

MESSAGES = (Message(role="user", content="x" * 3000),)


class Endpoint:
    """A model that returns the given reply or raises the given error."""

    identity = {"provider": "test", "name": "endpoint"}
    served = confirm = probe = aclose = quotas = None
    rate_limit_key = "test:endpoint"

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.request_count = 0

    async def complete(self, _request: ModelRequest) -> Reply:
        self.request_count += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return Reply(text="y" * 300, usage=self.answer)


def budgeted(answer: Any, budget: Budget, price: Price | None = None) -> tuple[BudgetedModel, Endpoint]:
    endpoint = Endpoint(answer)
    return BudgetedModel(endpoint, budget, price), endpoint  # type: ignore[arg-type]


def ask(model: BudgetedModel) -> Reply:
    return asyncio.run(model.complete(ModelRequest(MESSAGES)))


def test_a_budget_without_limits_is_never_spent() -> None:
    budget = Budget()
    budget.report(10**9, 10.0**6)
    budget.check()
    assert budget.reached == ""


@pytest.mark.parametrize(
    ("reports", "text"),
    [([], "0 USD"), ([0.5, 0.25], "0.75 USD"), ([0.5, None], "over 0.50 USD"), ([None], "cost unknown")],
)
def test_an_unknown_cost_is_never_reported_as_zero(reports: list[float | None], text: str) -> None:
    budget = Budget()
    for usd in reports:
        budget.report(10, usd)
    assert budget.spent_text == text


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(usd=5.0), "the budget of 5.00 USD is spent (5.25 USD); raise --toolemu-budget-usd, or run fewer cases with --toolemu-sample"),
        (Budget(tokens=1000), "the budget of 1,000 tokens is spent (1,200); raise --toolemu-budget-tokens, or run fewer cases with --toolemu-sample"),
        (Budget(seconds=60.0, until=100.0, clock=lambda: 100.0), "the deadline of 60 s has passed; raise --toolemu-deadline"),
    ],
)  # fmt: skip
def test_a_reached_limit_is_reported_with_the_fix(budget: Budget, message: str) -> None:
    budget.report(1200, 5.25)
    with pytest.raises(NotRunError) as caught:
        budget.check()
    assert str(caught.value) == message


def test_before_the_deadline_requests_are_allowed() -> None:
    Budget(seconds=60.0, until=100.0, clock=lambda: 99.9).check()


def test_a_spent_budget_sends_nothing() -> None:
    budget = Budget(tokens=100)
    model, endpoint = budgeted(Usage(input=90, output=20, calls=1), budget)
    ask(model)
    with pytest.raises(NotRunError):
        ask(model)
    assert (endpoint.request_count, budget.spent_tokens) == (1, 110)


def test_usd_are_computed_from_the_price() -> None:
    budget = Budget(usd=1.0)
    model, _ = budgeted(
        Usage(input=1_000_000, cached=500_000, calls=1), budget, Price(input=1.0, output=2.0, cached=0.1)
    )
    ask(model)
    assert budget.spent_usd == pytest.approx(0.55)


def test_a_prompt_too_long_for_the_price_is_not_free() -> None:
    budget = Budget(usd=1.0)
    model, _ = budgeted(Usage(input=1_000_000, calls=1), budget, Price(input=1.0, output=2.0, up_to=1000))
    ask(model)
    assert budget.spent_usd == 1.0


def test_unknown_usage_is_estimated_from_the_length_and_reported() -> None:
    budget = Budget(tokens=1000)
    model, _ = budgeted(Usage(calls=1, unknown=1), budget)
    ask(model)
    assert budget.spent_tokens > (3000 + 300) // 3
    assert ", 1 request without usage estimated from the text's length)" in budget.reached


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (ModelError("timed out", transient=True), True),
        (ModelError("no reply in it", status=200, transient=True), True),
        (asyncio.CancelledError(), True),
        (ModelError("slow down", status=429, transient=True), False),
        (ModelError("bad request", status=400), False),
    ],
)
def test_a_lost_reply_is_counted_and_a_refused_request_is_not(error: BaseException, counted: bool) -> None:
    budget = Budget(tokens=10**6)
    model, _ = budgeted(error, budget)
    with pytest.raises(type(error)):
        ask(model)
    assert (budget.spent_tokens >= 1000, budget.estimated) == (counted, int(counted))
