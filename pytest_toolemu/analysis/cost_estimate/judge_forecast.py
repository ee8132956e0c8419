"""Forecasts the requests to judges about stored runs, from their real prompts."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_toolemu.analysis.cost_estimate.forecast import (
    CHARACTERS_PER_TOKEN,
    DOUBT_RANGE,
    FALLBACK_RANGE,
    CostLine,
    Forecast,
    RoleModel,
    scaled,
)
from pytest_toolemu.analysis.cost_estimate.rehearsal import (
    DOUBT,
    FALLBACK_SHARES,
    RehearsedRequest,
    judgments,
    with_fallbacks,
)
from pytest_toolemu.analysis.cost_estimate.request_forecast import CORRECTIONS, request_forecast
from pytest_toolemu.analysis.rejudge import FINISHED, trajectory_of
from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.verdict import Evaluator
from pytest_toolemu.formats.counted import counted


def judge_forecast(questions: Iterable[tuple[Evaluator, Run]], *, batch: bool) -> Forecast:
    """Return the forecast of the requests of each evaluator about each run, with up to two corrections of each reply.

    Runs whose agent did not finish are not judged, and checks make no requests. ``batch`` says that the price is that
    of batches.
    """
    requests: dict[tuple[RoleModel, str, tuple[float, float, float]], list[RehearsedRequest]] = {}
    has_fallback = False
    for evaluator, run in questions:
        if run.stop in FINISHED:
            for request in with_fallbacks(judgments(evaluator, trajectory_of(run))):
                has_fallback |= "fallback" in request.model
                # Providers cache what a request shares with the one before it: requests of one rubric share the most.
                rubric = request.schema.name if request.schema else ""
                requests.setdefault((_who(request), rubric, request.shares), []).append(request)
    lines: dict[RoleModel, CostLine] = {}
    for (who, _, shares), group in requests.items():
        line = lines.setdefault(who, CostLine(group[0].model, batch=batch))
        part = request_forecast(group, group[0].model)
        line.expected += scaled(part.expected, shares[0])
        line.least += scaled(part.least, shares[1])
        line.most += scaled(part.most, shares[2])
    judged = sum(len(group) for (_, _, shares), group in requests.items() if shares != FALLBACK_SHARES)
    basis = (
        f"{counted(judged, 'judgment')}, estimated from their prompts "
        f"({CHARACTERS_PER_TOKEN:g} characters per token, replies of the usual length, no hidden reasoning); range: no "
        f"correction to {CORRECTIONS} corrections of each, with no prompt cache at the upper end of USD"
        f"{f'; {DOUBT_RANGE}' if any(shares[0] == DOUBT for _, _, shares in requests) else ''}"
        f"{f'; {FALLBACK_RANGE}' if has_fallback else ''}"
    )
    return Forecast(lines, (basis,) if lines else ())


def _who(request: RehearsedRequest) -> RoleModel:
    return request.role, provider_and_name(request.model)
