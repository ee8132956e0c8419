"""How many requests an endpoint bears, found out from its answers."""

from __future__ import annotations

import heapq
import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pytest_toolemu.scheduling.adaptive_limit import AdaptiveLimit, RequestOutcome

GOOD = RequestOutcome("ok", 0.25)
BUSY = RequestOutcome("busy", 0.01)


def busy(retry_after: float) -> RequestOutcome:
    return BUSY._replace(retry_after=retry_after)


def asked(throttle: AdaptiveLimit[int], count: int) -> list[int]:
    for number in range(count):
        throttle.ask(number)
    return throttle.granted(0)


def answered(throttle: AdaptiveLimit[int], answers: list[RequestOutcome], now: float = 0.0) -> None:
    for number, answer in enumerate(answers):
        throttle.back(number, answer, now)


def test_requests_are_granted_in_turn_up_to_the_limit() -> None:
    throttle: AdaptiveLimit[int] = AdaptiveLimit(2)
    assert asked(throttle, 4) == [0, 1]
    throttle.back(0, GOOD, 0)
    assert throttle.granted(0) == [2]
    assert (throttle.in_flight, throttle.queued) == (2, 1)


def test_it_halves_when_a_sixth_of_the_last_answers_are_refusals_and_only_once_a_round_trip() -> None:
    throttle: AdaptiveLimit[int] = AdaptiveLimit(32)
    asked(throttle, 40)
    answered(throttle, [BUSY] * 5)
    assert throttle.limit == 32
    answered(throttle, [BUSY] * 32)
    assert throttle.limit == 16


def test_a_few_refusals_change_nothing() -> None:
    throttle: AdaptiveLimit[int] = AdaptiveLimit(4)
    asked(throttle, 6)
    answered(throttle, [busy(20)], now=1)
    assert throttle.limit == 4
    assert throttle.granted(1) == []  # only to be refused at once
    throttle.back(1, GOOD, 1)
    assert throttle.granted(1) == [4, 5]


def test_it_never_falls_below_one() -> None:
    throttle: AdaptiveLimit[int] = AdaptiveLimit(1)
    for number in range(50):
        throttle.ask(number)
        throttle.granted(0)
        throttle.back(number, BUSY, 0)
    assert throttle.limit == 1


def test_while_it_is_what_holds_requests_back_it_grows_and_slower_at_first_where_it_was_cut() -> None:
    throttle: AdaptiveLimit[int] = AdaptiveLimit(32)
    asked(throttle, 1000)
    answered(throttle, [BUSY] * 6)
    assert throttle.limit == 16
    limits = []
    for number in range(6, 900):
        throttle.back(number, GOOD, 0)
        throttle.granted(0)
        if throttle.limit not in limits:
            limits.append(throttle.limit)
    assert limits[:5] == [16, 24, 28.8, 29.8, 31.8]


def test_it_does_not_grow_when_it_is_not_needed() -> None:
    throttle: AdaptiveLimit[int] = AdaptiveLimit(8)
    for number in range(100):
        throttle.ask(number)
        throttle.granted(0)
        throttle.back(number, GOOD, 0)
    assert throttle.limit == 8


def test_it_does_not_grow_while_answers_take_longer_and_longer() -> None:
    throttle: AdaptiveLimit[int] = AdaptiveLimit(8)
    asked(throttle, 500)
    for number in range(8):
        throttle.back(number, GOOD, 0)
    throttle.granted(0)
    grown = throttle.limit
    assert grown > 8
    for number in range(8, 300):
        throttle.back(number, GOOD._replace(seconds=2.0), 0)
        throttle.granted(0)
    assert throttle.limit == grown


def test_when_many_are_refused_everybody_waits_as_long_as_the_endpoint_asks() -> None:
    throttle: AdaptiveLimit[int] = AdaptiveLimit(8)
    asked(throttle, 9)
    answered(throttle, [busy(20)] * 6, now=1)
    answered(throttle, [GOOD] * 8, now=2)
    assert throttle.granted(20.9) == []
    assert throttle.due(2) == 21
    assert throttle.granted(21) == [8]


def test_what_headers_leave_is_kept_to_and_comes_back_bit_by_bit() -> None:
    throttle: AdaptiveLimit[int] = AdaptiveLimit(8)
    asked(throttle, 1)
    for number in range(1, 6):
        throttle.ask(number)
    throttle.granted(0)
    assert throttle.in_flight == 6
    answered(throttle, [GOOD] * 5)
    throttle.back(5, GOOD._replace(request_quota=(1, 2.0)), 10)
    for number in range(10, 13):
        throttle.ask(number)
    assert throttle.granted(10) == [10]
    assert throttle.due(10) == 12
    assert throttle.granted(12) == [11]
    assert throttle.due(12) == 14


def test_tokens_left_are_requests_left_of_the_usual_size() -> None:
    throttle: AdaptiveLimit[int] = AdaptiveLimit(8)
    asked(throttle, 1)
    throttle.back(0, RequestOutcome("ok", 0.1, (800, 200, 0, 0), token_quota=(2500, 0.01)), 0)
    throttle.ask(1)
    throttle.granted(0)
    throttle.back(1, RequestOutcome("ok", 0.1, (800, 200, 0, 0), token_quota=(2500, 0.01)), 0)
    for number in range(2, 6):
        throttle.ask(number)
    assert throttle.granted(0) == [2, 3]
    assert throttle.due(0) == pytest.approx(5)


def test_a_request_that_nobody_will_send_leaves_no_trace() -> None:
    throttle: AdaptiveLimit[int] = AdaptiveLimit(1)
    asked(throttle, 3)
    throttle.back(1, RequestOutcome("unsent"), 0)
    throttle.back(0, RequestOutcome("unsent"), 0)
    assert throttle.granted(0) == [2]


@given(st.integers(1, 40), st.data())
def test_never_more_in_flight_than_the_limit_and_all_are_granted_in_the_end(start: int, data: st.DataObject) -> None:
    throttle: AdaptiveLimit[int] = AdaptiveLimit(start)
    answers = st.sampled_from(
        [
            GOOD,
            BUSY,
            busy(0.5),
            RequestOutcome("failed"),
            RequestOutcome("unsent"),
            GOOD._replace(request_quota=(0, 0.1)),
        ]
    )
    for number in range(60):
        throttle.ask(number)
    flying: list[int] = []
    now, granted = 0.0, 0
    while granted < 60:
        allowed = max(int(throttle.limit), throttle.in_flight)
        fresh = throttle.granted(now)
        flying += fresh
        granted += len(fresh)
        assert throttle.in_flight == len(flying) <= allowed
        if flying:
            throttle.back(flying.pop(data.draw(st.integers(0, len(flying) - 1))), data.draw(answers), now)
        elif not fresh:
            due = throttle.due(now)
            assert due is not None
            assert due > now
            now = due


def simulate(capacity: int, noise: float, requests: int = 3000, start: int = 64) -> tuple[float, int]:
    """How much longer than needed, and how many refusals, at an endpoint that bears ``capacity`` at a time."""
    draw = random.Random(0)
    throttle: AdaptiveLimit[int] = AdaptiveLimit(start)
    for number in range(1, requests + 1):
        throttle.ask(number)
    ends: list[tuple[float, int, bool]] = []
    now, done, refused, serving = 0.0, 0, 0, 0
    while done < requests:
        for number in throttle.granted(now):
            fine = serving < capacity and draw.random() >= noise
            serving += fine
            heapq.heappush(ends, (now + (0.25 if fine else 0.01), number, fine))
        now, number, fine = heapq.heappop(ends)
        if number < 0:  # one that was refused has backed off
            throttle.ask(-number)
            continue
        serving -= fine
        done += fine
        refused += not fine
        throttle.back(number, GOOD if fine else BUSY, now)
        if not fine:
            heapq.heappush(ends, (now + draw.uniform(0, 0.25), -number, fine))
    return now / (requests / capacity * 0.25), refused


@pytest.mark.parametrize(("capacity", "noise"), [(20, 0.0), (5, 0.0), (64, 0.05), (20, 0.04)])
def test_it_comes_close_to_what_the_endpoint_bears(capacity: int, noise: float) -> None:
    longer, refused = simulate(capacity, noise)
    assert longer < 1.25
    assert refused < 3000 * (noise + 0.3)
