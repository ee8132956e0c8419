from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar, cast

import pytest

from pytest_toolemu.core import case_timer
from pytest_toolemu.core.messages import ModelRequest, Reply
from pytest_toolemu.errors import ModelError
from pytest_toolemu.models.endpoint import RemoteModel
from pytest_toolemu.models.retrying import LocalRateLimiter, RateLimiter, RetryingModel
from pytest_toolemu.scheduling.adaptive_limit import RequestOutcome
from tests.loopback import Fault, conforming, faulty, together
from tests.loopback.fixtures import Loopback
from tests.models.conftest import ANTHROPIC_KEY, OPENAI_KEY, PAY, QUESTION, VERDICT, complete, opened, using


class Time:
    """A simulated clock: records sleeps without waiting, and makes each request last ``request`` seconds."""

    def __init__(self, request: float = 0.0) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.request = request

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        self.now += self.request  # read before and after each request
        return self.now

    def patient(
        self, model: RemoteModel, rate_limiter: RateLimiter | None = None, fraction: float = 1.0
    ) -> RetryingModel:
        return RetryingModel(
            model,
            rate_limiter or LocalRateLimiter(1),
            sleep=self.sleep,
            draw=lambda low, high: low + fraction * (high - low),
            clock=self.clock,
        )


def test_a_transient_failure_is_retried(loopback: Loopback, caplog: pytest.LogCaptureFixture) -> None:
    time, url = Time(), loopback(faulty(conforming(), {1: Fault(status=503), 2: Fault("drop")})).url
    caplog.set_level(logging.INFO, "pytest_toolemu.models.retrying")
    reply = complete(time.patient(opened("openai", url)))
    assert reply.text == "Done."
    assert reply.lost_attempts == 1, "a refused attempt costs nothing, a lost one may"
    assert time.slept == [0.25, 0.5]
    log_messages = [record.message for record in caplog.records if record.name == "pytest_toolemu.models.retrying"]
    assert "answered 503" in log_messages[0]
    assert "attempt 2 in 0.2 s" in log_messages[0]


def test_a_persistent_failure_ends_after_eight_attempts(loopback: Loopback) -> None:
    time, server = Time(), loopback(lambda _: Fault(status=503, message="Down."))
    with pytest.raises(ModelError, match=r"answered 503: Down\. \(given up after 8 attempts in 32 s\)") as caught:
        complete(time.patient(opened("openai", server.url)))
    assert (caught.value.status, caught.value.transient) == (503, True)
    assert len(server.requests) == 8
    assert time.slept == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0]


@pytest.mark.parametrize(("provider", "status"), [("openai", 429), ("anthropic", 529)])
def test_refusals_because_of_load_are_retried_more_often(loopback: Loopback, provider: str, status: int) -> None:
    time, server = Time(), loopback(lambda _: Fault(status=status))
    with pytest.raises(ModelError, match=r"given up after 20 attempts"):
        complete(time.patient(opened(provider, server.url), fraction=0.001))
    assert len(server.requests) == 20


def test_an_account_without_credit_is_not_retried(loopback: Loopback) -> None:
    time, server = Time(), loopback(lambda _: Fault(status=429, code="insufficient_quota"))
    with pytest.raises(ModelError):
        complete(time.patient(opened("openai", server.url)))
    assert (len(server.requests), time.slept) == (1, [])


def test_the_back_off_has_full_jitter(loopback: Loopback) -> None:
    time, url = Time(), loopback(faulty(conforming(), {1: Fault(), 2: Fault(), 3: Fault()})).url
    complete(time.patient(opened("openai", url), fraction=0.25))
    assert time.slept == [0.0625, 0.125, 0.25]


def test_the_delay_is_at_least_that_of_the_retry_after_header(loopback: Loopback) -> None:
    time, url = Time(), loopback(faulty(conforming(), {1: Fault(status=429, retry_after=20)})).url
    complete(time.patient(opened("anthropic", url), fraction=0.5))
    assert time.slept == [20.125]


def test_a_wait_beyond_the_time_limit_is_not_begun(loopback: Loopback) -> None:
    time, server = Time(), loopback(lambda _: Fault(status=429, retry_after=3600))
    with pytest.raises(ModelError, match=r"given up after 1 attempts") as caught:
        complete(time.patient(opened("openai", server.url)))
    assert (time.slept, caught.value.retry_after) == ([], 3600)


def test_slow_failures_use_up_the_time_limit(loopback: Loopback) -> None:
    time, server = Time(request=60.0), loopback(lambda _: Fault(status=504))
    with pytest.raises(ModelError, match="given up after 3 attempts"):
        complete(time.patient(opened("openai", server.url)))
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_permanent_failure_is_not_retried(loopback: Loopback, status: int) -> None:
    time, server = Time(), loopback(lambda _: Fault(status=status, message="No."))
    with pytest.raises(ModelError) as caught:
        complete(time.patient(opened("openai", server.url)))
    assert caught.value.status == status
    assert (len(server.requests), time.slept) == (1, [])


def test_request_and_identity_are_unchanged(loopback: Loopback) -> None:
    server = loopback()
    model = opened("openai", server.url)
    wrapped = RetryingModel(model, LocalRateLimiter(1))
    complete(wrapped, tools=(PAY,), schema=VERDICT)
    assert wrapped.identity == model.identity
    assert server.requests[0].tools[0].name == "Bank_Pay"
    assert server.requests[0].schema_name == "verdict"


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_requests_in_flight_than_allowed(loopback: Loopback, concurrency: int) -> None:
    server = loopback(together(concurrency, conforming()))

    async def many(model: RemoteModel) -> None:
        await asyncio.gather(*(model.complete(ModelRequest(QUESTION)) for _ in range(4)))

    using(RetryingModel(opened("openai", server.url), LocalRateLimiter(concurrency)), many)
    assert (len(server.requests), server.peak) == (4, concurrency)


class Watched(LocalRateLimiter):
    """A rate limiter that records the outcomes of requests."""

    def __init__(self) -> None:
        super().__init__(1)
        self.answers: list[RequestOutcome] = []
        self.keys: list[str] = []

    async def acquire(self, key: str) -> int:
        self.keys.append(key)
        return await super().acquire(key)

    def release(self, ticket: int, outcome: RequestOutcome) -> None:
        self.answers.append(outcome)
        super().release(ticket, outcome)


def test_the_rate_limiter_gets_the_outcome_of_each_attempt(loopback: Loopback) -> None:
    faults = {1: Fault(status=429, retry_after=3), 2: Fault(status=500)}
    time, rate_limiter = Time(), Watched()
    complete(time.patient(opened("openai", loopback(faulty(conforming(), faults)).url), rate_limiter))
    assert [(answer.status, answer.retry_after) for answer in rate_limiter.answers] == [
        ("busy", 3),
        ("failed", None),
        ("ok", None),
    ]
    assert rate_limiter.answers[-1].tokens == 15


def test_a_rate_limit_key_names_provider_model_and_host_but_hides_the_credential(loopback: Loopback) -> None:
    url, rate_limiter = loopback().url, Watched()
    complete(RetryingModel(opened("openai", url), rate_limiter))
    complete(RetryingModel(opened("openai", url, name="another"), rate_limiter))
    complete(RetryingModel(opened("anthropic", url), rate_limiter))
    assert len(set(rate_limiter.keys)) == 3
    assert not [key for key in rate_limiter.keys if OPENAI_KEY in key or ANTHROPIC_KEY in key]


def test_a_wait_for_a_permit_can_be_canceled(loopback: Loopback) -> None:
    url = loopback().url

    async def canceled(model: RemoteModel) -> None:
        rate_limiter = LocalRateLimiter(1)
        ticket = await rate_limiter.acquire("somebody")
        waiting = asyncio.create_task(rate_limiter.acquire("somebody"))
        after = asyncio.create_task(rate_limiter.acquire("somebody"))
        await asyncio.sleep(0)
        waiting.cancel()
        rate_limiter.release(ticket, RequestOutcome("ok"))
        assert await after > 0
        del model

    using(opened("openai", url), canceled)


def test_waiting_for_permits_and_back_off_do_not_count_as_running_time(
    loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = loopback(faulty(conforming(), {1: Fault(status=503)})).url

    async def timed(model: RemoteModel) -> None:
        loop, jumps = asyncio.get_running_loop(), [0.0]
        now = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + sum(jumps))
        rate_limiter, backs_off = LocalRateLimiter(1), asyncio.Event()
        ticket = await rate_limiter.acquire(model.rate_limit_key)

        def draw(*_: float) -> float:
            backs_off.set()
            return 60.0

        async def case() -> float:
            clock = case_timer.begin()
            async with clock.limit(50):
                await RetryingModel(model, rate_limiter, draw=draw).complete(ModelRequest(QUESTION))
            return clock.seconds

        async def jump() -> None:
            for _ in range(10):  # until the case waits
                await asyncio.sleep(0)
            jumps.append(60.0)

        task = asyncio.create_task(case())
        await jump()
        rate_limiter.release(ticket, RequestOutcome("ok"))
        await backs_off.wait()
        await jump()
        assert await task < 50

    using(opened("openai", url), timed)


class Slow:
    """A model whose answers and failures the test triggers."""

    rate_limit_key = "slow"
    identity: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.answers: asyncio.Queue[Reply | ModelError] = asyncio.Queue()
        self.verdicts: asyncio.Queue[Reply | ModelError] = asyncio.Queue()

    def quotas(self) -> tuple[None, None]:
        return None, None

    async def complete(self, request: ModelRequest) -> Reply:
        answer = await (self.verdicts if request.schema else self.answers).get()
        if isinstance(answer, ModelError):
            raise answer
        return answer

    def preflight(self) -> None: ...

    aclose = preflight


def test_a_request_that_takes_twice_as_long_as_usual_stalls_its_case_and_so_does_back_off() -> None:
    holds: asyncio.Queue[bool] = asyncio.Queue()
    passing = ModelError("busy", status=503, transient=True)

    async def case() -> None:
        slow = Slow()
        case_timer.begin(holds.put_nowait)
        model = RetryingModel(cast(RemoteModel, slow), LocalRateLimiter(2), draw=lambda *_: 0.01)
        for _ in range(8):  # until then, the usual duration is unknown
            slow.answers.put_nowait(Reply())
            await model.complete(ModelRequest(QUESTION))
        assert holds.empty()
        judging = asyncio.create_task(
            model.complete(ModelRequest(QUESTION, schema=VERDICT))
        )  # its usual duration is unknown, too
        asking = asyncio.create_task(model.complete(ModelRequest(QUESTION)))
        assert await holds.get() is True
        slow.answers.put_nowait(Reply())
        await asking
        assert await holds.get() is False
        slow.verdicts.put_nowait(Reply())
        await judging
        for answer in (passing, Reply()):
            slow.answers.put_nowait(answer)
        await model.complete(ModelRequest(QUESTION))
        assert [await holds.get(), await holds.get()] == [True, False]

    asyncio.run(asyncio.wait_for(case(), 30))
