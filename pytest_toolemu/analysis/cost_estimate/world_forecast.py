"""Forecasts the requests for the worlds that a session has to build, from their real prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pytest_toolemu.analysis.cost_estimate.forecast import CHARACTERS_PER_TOKEN, CostLine, RoleModel
from pytest_toolemu.analysis.cost_estimate.rehearsal import RehearsedRequest
from pytest_toolemu.analysis.cost_estimate.request_forecast import CORRECTIONS, request_forecast
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.emulators.world_builder import builder_messages, declared_plans, reply_schema
from pytest_toolemu.formats.counted import counted

# Characters of a reply with six to fourteen rows in the main table, and of an earlier scenario.
_REPLY: Final = 3000
_SCENARIO: Final = 300


def world_forecast(worlds: Sequence[tuple[ResolvedCase, int]], model: Any) -> tuple[RoleModel, CostLine, str]:
    """Return the line of the builder, and a sentence that states its basis.

    ``worlds`` are the cases with the numbers of the worlds to build. One request for each is expected and the least;
    the most are two corrections of each.
    """
    line = request_forecast(_requests(worlds, model), model)
    name = f"{model.identity.get('provider')}:{model.identity.get('name')}"
    basis = (
        f"{counted(len(worlds), 'world')} to build, estimated from their prompts ({CHARACTERS_PER_TOKEN:g} characters "
        f"per token, replies of the usual length, no hidden reasoning); range: no correction to {CORRECTIONS} "
        "corrections of each"
    )
    return ("builder", name), line, basis


def _requests(worlds: Sequence[tuple[ResolvedCase, int]], model: Any) -> Iterator[RehearsedRequest]:
    for resolved_case, variant in worlds:
        plans = declared_plans(resolved_case)
        earlier = ["x" * _SCENARIO] * (variant - 1)
        messages = builder_messages(resolved_case, plans, earlier)
        yield RehearsedRequest("builder", model.identity, messages, (), reply_schema(plans), _REPLY)
