"""Read the remaining requests and tokens from response headers. Both providers' limits are token buckets."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from pytest_toolemu.scheduling.adaptive_limit import Quota

# Headers with the remaining amount, the limit, and the time when the bucket is full again.
_HEADERS: Final = (
    ("x-ratelimit-remaining-{}", "x-ratelimit-limit-{}", "x-ratelimit-reset-{}"),
    ("anthropic-ratelimit-{}-remaining", "anthropic-ratelimit-{}-limit", "anthropic-ratelimit-{}-reset"),
)
_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|h|m|s)")
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def quotas(headers: Mapping[str, str]) -> tuple[Quota | None, Quota | None]:
    """Return the quotas of requests and of tokens; None if the headers are missing or cannot be read."""
    # The headers of the HTTP library are searched one by one for each name, and most responses have none of these.
    by_name = {name.lower(): value for name, value in headers.items()}
    return _quota(by_name, "requests"), _quota(by_name, "tokens")


def _quota(headers: Mapping[str, str], unit: str) -> Quota | None:
    for names in _HEADERS:
        remaining, limit, reset = (headers.get(name.format(unit)) for name in names)
        if remaining is None:
            continue
        try:
            amount, capacity = float(remaining), float(limit or remaining)
            until_full = _seconds(reset or "0s")
        except ValueError:
            continue
        return Quota(max(0.0, amount), max(0.0, until_full) / max(1.0, capacity - amount))
    return None


def _seconds(text: str) -> float:
    """Read a duration as OpenAI writes it (``6m0s``, ``20ms``), plain seconds, or a time as Anthropic writes it."""
    if re.fullmatch(rf"(?:{_PART.pattern})+", text):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp() - time.time()
