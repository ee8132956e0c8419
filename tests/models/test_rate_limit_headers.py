"""Quotas in the headers of a response."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pytest_toolemu.models.endpoint import quotas
from pytest_toolemu.scheduling.adaptive_limit import Quota


@pytest.mark.parametrize(
    ("reset", "seconds"), [("1s", 1.0), ("6m0s", 360.0), ("20ms", 0.02), ("1h2m3.5s", 3723.5), ("12", 12.0)]
)
def test_quotas_are_read_from_openais_headers(reset: str, seconds: float) -> None:
    headers = {
        "x-ratelimit-limit-requests": "100",
        "x-ratelimit-remaining-requests": "90",
        "x-ratelimit-reset-requests": reset,
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": reset,
    }
    # The reset is the time at which the quota is full; it refills evenly until then.
    assert quotas(headers) == (Quota(90, seconds / 10), Quota(0, seconds / 1000))


def test_quotas_are_read_from_anthropics_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    monkeypatch.setattr("time.time", now.timestamp)
    full = now + timedelta(seconds=60)
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "20",
        "anthropic-ratelimit-requests-reset": full.isoformat().replace("+00:00", "Z"),
    }
    requests, tokens = quotas(headers)
    assert requests == Quota(20, 2.0)
    assert tokens is None


@pytest.mark.parametrize("reset", ["", "soon", "-5", "nan"])
def test_unreadable_headers_yield_no_quota_or_one_without_a_wait(reset: str) -> None:
    headers = {"x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": reset}
    assert quotas(headers)[0] in (None, Quota(7, 0.0))


def test_endpoints_without_headers_yield_no_quota() -> None:
    assert quotas({"content-type": "application/json"}) == (None, None)
