"""Forecasts requests to one model whose replies may be sent back for correction, from their real prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os.path import commonprefix
from typing import Any, Final

from pytest_toolemu.analysis.cost_estimate.forecast import CostLine, request_usage
from pytest_toolemu.analysis.cost_estimate.rehearsal import RehearsedRequest

CORRECTIONS: Final = 2
"""The most corrections of a reply."""

# Characters of the problems that are sent back.
_CORRECTION: Final = 400


def request_forecast(requests: Iterable[RehearsedRequest], identity: Mapping[str, Any]) -> CostLine:
    """Return the forecast of the requests: without corrections as expected and least, with two of each as most."""
    line = CostLine(identity)
    before = ""
    for request in requests:
        # Providers cache what the request shares with the one before it.
        cached = len(commonprefix([before, request.text]))  # noqa: RUF071  (these are not paths)
        before = request.text
        first = request_usage(len(request.text), cached, request.reply)
        line.expected, line.least, line.most = line.expected + first, line.least + first, line.most + first
        for number in range(1, CORRECTIONS + 1):
            added = request.reply + _CORRECTION
            length = len(request.text) + number * added
            line.most += request_usage(length, length - added, request.reply)
    return line
