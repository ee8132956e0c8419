from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from pytest_toolemu.errors import ModelError
from pytest_toolemu.models import Endpoint
from pytest_toolemu.models.limited import Limited, limited
from tests.loopback import Fault, conforming, faulty, together
from tests.loopback.fixtures import Loopback
from tests.models.conftest import PAY, QUESTION, VERDICT, complete, opened, using


class Time:
    """Sleeps at once, remembers how long, and makes each request last ``request`` seconds."""

    def __init__(self, request: float = 0.0) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.request = request

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        self.now += self.request / 2  # read three times an attempt, of which the last two enclose the request
        return self.now

    def patient(self, model: Endpoint, slots: Any = None, fraction: float = 1.0) -> Limited:
        return Limited(
            model,
            slots or asyncio.Semaphore(1),
            sleep=self.sleep,
            draw=lambda low, high: low + fraction * (high - low),
            clock=self.clock,
        )


def test_a_passing_failure_is_waited_out(loopback: Loopback, caplog: pytest.LogCaptureFixture) -> None:
    time, url = Time(), loopback(faulty(conforming(), {1: Fault(status=503), 2: Fault("drop")})).url
    caplog.set_level(logging.INFO, "pytest_toolemu.models.limited")
    assert complete(time.patient(opened("openai", url))).text == "Done."
    assert time.slept == [1.0, 2.0]
    assert "answered 503" in caplog.messages[0]
    assert "attempt 2 of 6 in 1.0 s" in caplog.messages[0]


def test_a_failure_that_stays_ends_after_six_attempts(loopback: Loopback) -> None:
    time, server = Time(), loopback(lambda _: Fault(status=503, message="Down."))
    with pytest.raises(ModelError, match=r"answered 503: Down\. \(given up after 6 attempts in 31 s\)") as caught:
        complete(time.patient(opened("openai", server.url)))
    assert (caught.value.status, caught.value.transient) == (503, True)
    assert len(server.requests) == 6
    assert time.slept == [1.0, 2.0, 4.0, 8.0, 16.0]


def test_the_back_off_has_full_jitter(loopback: Loopback) -> None:
    time, url = Time(), loopback(faulty(conforming(), {1: Fault(), 2: Fault(), 3: Fault()})).url
    complete(time.patient(opened("openai", url), fraction=0.25))
    assert time.slept == [0.25, 0.5, 1.0]


def test_it_waits_as_long_as_it_is_told(loopback: Loopback) -> None:
    time, url = Time(), loopback(faulty(conforming(), {1: Fault(status=429, retry_after=20)})).url
    complete(time.patient(opened("anthropic", url), fraction=0.5))
    assert time.slept == [20.5]


def test_a_wait_beyond_all_patience_is_not_begun(loopback: Loopback) -> None:
    time, server = Time(), loopback(lambda _: Fault(status=429, retry_after=3600))
    with pytest.raises(ModelError, match=r"given up after 1 attempts") as caught:
        complete(time.patient(opened("openai", server.url)))
    assert (time.slept, caught.value.retry_after) == ([], 3600)


def test_slow_failures_use_up_the_patience(loopback: Loopback) -> None:
    time, server = Time(request=120.0), loopback(lambda _: Fault(status=504))
    with pytest.raises(ModelError, match="given up after 3 attempts"):
        complete(time.patient(opened("openai", server.url)))
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_permanent_failure_is_not_repeated(loopback: Loopback, status: int) -> None:
    time, server = Time(), loopback(lambda _: Fault(status=status, message="No."))
    with pytest.raises(ModelError) as caught:
        complete(time.patient(opened("openai", server.url)))
    assert caught.value.status == status
    assert (len(server.requests), time.slept) == (1, [])


def test_what_is_asked_and_who_is_asked_stay_the_same(loopback: Loopback) -> None:
    server = loopback()
    model = opened("openai", server.url)
    wrapped = limited(model, 1)
    complete(wrapped, tools=(PAY,), schema=VERDICT)
    assert wrapped.identity == model.identity
    assert server.requests[0].tools[0].name == "Bank_Pay"
    assert server.requests[0].schema_name == "verdict"


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_requests_in_flight_than_allowed(loopback: Loopback, concurrency: int) -> None:
    server = loopback(together(concurrency, conforming()))

    async def many(model: Endpoint) -> None:
        await asyncio.gather(*(model.complete(QUESTION) for _ in range(7)))

    using(limited(opened("openai", server.url), concurrency), many)
    assert (len(server.requests), server.peak) == (7, concurrency)


def test_a_slot_is_free_while_its_request_backs_off_and_sees_the_failure(loopback: Loopback) -> None:
    url = loopback(faulty(conforming(), {1: Fault(status=429)})).url
    seen: list[Any] = []

    class Slots:
        async def __aenter__(self) -> None:
            seen.append("in")

        async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
            seen.append(getattr(error, "status", None))

    time = Time()
    complete(time.patient(opened("openai", url), Slots()))
    assert seen == ["in", 429, "in", None]
