"""The number of concurrent requests that an endpoint accepts, learned from its answers."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pytest_toolemu.scheduling.adaptive_limit import AdaptiveLimit, Quota, RequestOutcome

GOOD = RequestOutcome("ok", 0.25)
BUSY = RequestOutcome("busy", 0.01)


def busy(retry_after: float) -> RequestOutcome:
    return replace(BUSY, retry_after=retry_after)


def request_permits(limit: AdaptiveLimit[int], count: int) -> list[int]:
    for number in range(count):
        limit.enqueue(number)
    return limit.grant(0)


def release_permits(limit: AdaptiveLimit[int], answers: list[RequestOutcome], now: float = 0.0) -> None:
    for number, answer in enumerate(answers):
        limit.release(number, answer, now)


def test_requests_are_granted_in_turn_up_to_the_limit() -> None:
    limit: AdaptiveLimit[int] = AdaptiveLimit(2)
    assert request_permits(limit, 4) == [0, 1]
    limit.release(0, GOOD, 0)
    assert limit.grant(0) == [2]
    assert (limit.in_flight, limit.queued) == (2, 1)


def test_it_halves_once_per_round_trip_when_a_sixth_of_the_last_answers_are_refusals() -> None:
    limit: AdaptiveLimit[int] = AdaptiveLimit(32)
    request_permits(limit, 40)
    release_permits(limit, [BUSY] * 5)
    assert limit.limit == 32
    release_permits(limit, [BUSY] * 32)
    assert limit.limit == 16


def test_a_few_refusals_change_nothing() -> None:
    limit: AdaptiveLimit[int] = AdaptiveLimit(4)
    request_permits(limit, 6)
    release_permits(limit, [busy(20)], now=1)
    assert limit.limit == 4
    assert limit.grant(1) == []  # it would be refused at once
    limit.release(1, GOOD, 1)
    assert limit.grant(1) == [4, 5]


def test_it_never_falls_below_one() -> None:
    limit: AdaptiveLimit[int] = AdaptiveLimit(1)
    for number in range(50):
        limit.enqueue(number)
        limit.grant(0)
        limit.release(number, BUSY, 0)
    assert limit.limit == 1


def test_it_grows_while_requests_wait_and_slowly_near_the_value_at_which_it_was_cut() -> None:
    limit: AdaptiveLimit[int] = AdaptiveLimit(32)
    request_permits(limit, 1000)
    release_permits(limit, [BUSY] * 6)
    assert limit.limit == 16
    limits = []
    for number in range(6, 900):
        limit.release(number, GOOD, 0)
        limit.grant(0)
        if limit.limit not in limits:
            limits.append(limit.limit)
    assert limits[:5] == [16, 24, 28.8, 29.8, 31.8]


def test_it_does_not_grow_when_it_is_not_needed() -> None:
    limit: AdaptiveLimit[int] = AdaptiveLimit(8)
    for number in range(100):
        limit.enqueue(number)
        limit.grant(0)
        limit.release(number, GOOD, 0)
    assert limit.limit == 8


def test_it_does_not_grow_while_answers_take_longer_and_longer() -> None:
    limit: AdaptiveLimit[int] = AdaptiveLimit(8)
    request_permits(limit, 500)
    for number in range(8):
        limit.release(number, GOOD, 0)
    limit.grant(0)
    grown = limit.limit
    assert grown > 8
    for number in range(8, 300):
        limit.release(number, replace(GOOD, seconds=2.0), 0)
        limit.grant(0)
    assert limit.limit == grown


def test_after_many_refusals_all_requests_wait_as_long_as_the_endpoint_asks() -> None:
    limit: AdaptiveLimit[int] = AdaptiveLimit(8)
    request_permits(limit, 9)
    release_permits(limit, [busy(20)] * 6, now=1)
    release_permits(limit, [GOOD] * 8, now=2)
    assert limit.grant(20.9) == []
    assert limit.next_grant(2) == 21
    assert limit.grant(21) == [8]


def test_a_quota_in_headers_is_respected_and_refills_over_time() -> None:
    limit: AdaptiveLimit[int] = AdaptiveLimit(8)
    request_permits(limit, 1)
    for number in range(1, 6):
        limit.enqueue(number)
    limit.grant(0)
    assert limit.in_flight == 6
    release_permits(limit, [GOOD] * 5)
    limit.release(5, replace(GOOD, request_quota=Quota(1, 2.0)), 10)
    for number in range(10, 13):
        limit.enqueue(number)
    assert limit.grant(10) == [10]
    assert limit.next_grant(10) == 12
    assert limit.grant(12) == [11]
    assert limit.next_grant(12) == 14


def test_a_token_quota_limits_requests_by_their_mean_size() -> None:
    limit: AdaptiveLimit[int] = AdaptiveLimit(8)
    request_permits(limit, 1)
    limit.release(0, RequestOutcome("ok", 0.1, 1000, token_quota=Quota(2500, 0.01)), 0)
    limit.enqueue(1)
    limit.grant(0)
    limit.release(1, RequestOutcome("ok", 0.1, 1000, token_quota=Quota(2500, 0.01)), 0)
    for number in range(2, 6):
        limit.enqueue(number)
    assert limit.grant(0) == [2, 3]
    assert limit.next_grant(0) == pytest.approx(5)


def test_an_unsent_request_changes_nothing() -> None:
    limit: AdaptiveLimit[int] = AdaptiveLimit(1)
    request_permits(limit, 3)
    limit.release(1, RequestOutcome("unsent"), 0)
    limit.release(0, RequestOutcome("unsent"), 0)
    assert limit.grant(0) == [2]


@given(st.integers(1, 40), st.data())
def test_never_more_in_flight_than_the_limit_and_all_are_granted_in_the_end(start: int, data: st.DataObject) -> None:
    limit: AdaptiveLimit[int] = AdaptiveLimit(start)
    answers = st.sampled_from(
        [
            GOOD,
            BUSY,
            busy(0.5),
            RequestOutcome("failed"),
            RequestOutcome("unsent"),
            replace(GOOD, request_quota=Quota(0, 0.1)),
        ]
    )
    for number in range(60):
        limit.enqueue(number)
    flying: list[int] = []
    now, granted = 0.0, 0
    while granted < 60:
        allowed = max(int(limit.limit), limit.in_flight)
        fresh = limit.grant(now)
        flying += fresh
        granted += len(fresh)
        assert limit.in_flight == len(flying) <= allowed
        if flying:
            limit.release(flying.pop(data.draw(st.integers(0, len(flying) - 1))), data.draw(answers), now)
        elif not fresh:
            due = limit.next_grant(now)
            assert due is not None
            assert due > now
            now = due


def simulate(capacity: int, noise: float, requests: int = 3000, start: int = 64) -> tuple[float, int]:
    """Return the time taken, as a multiple of the minimum, and the refusals of an endpoint that accepts ``capacity`` at a time."""
    draw = random.Random(0)
    limit: AdaptiveLimit[int] = AdaptiveLimit(start)
    for number in range(1, requests + 1):
        limit.enqueue(number)
    ends: list[tuple[float, int, bool]] = []
    now, answers, refused, serving = 0.0, 0, 0, 0
    while answers < requests:
        for number in limit.grant(now):
            fine = serving < capacity and draw.random() >= noise
            serving += fine
            heapq.heappush(ends, (now + (0.25 if fine else 0.01), number, fine))
        now, number, fine = heapq.heappop(ends)
        if number < 0:  # the client of a refused request has backed off
            limit.enqueue(-number)
            continue
        serving -= fine
        answers += fine
        refused += not fine
        limit.release(number, GOOD if fine else BUSY, now)
        if not fine:
            heapq.heappush(ends, (now + draw.uniform(0, 0.25), -number, fine))
    return now / (requests / capacity * 0.25), refused


@pytest.mark.parametrize(("capacity", "noise"), [(20, 0.0), (5, 0.0), (64, 0.05), (20, 0.04)])
def test_it_approaches_the_capacity_of_the_endpoint(capacity: int, noise: float) -> None:
    longer, refused = simulate(capacity, noise)
    assert longer < 1.25
    assert refused < 3000 * (noise + 0.3)
