"""Forecasts the requests for the worlds that a session has to build, from their real prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pytest_toolemu.analysis.cost_estimate.forecast import CHARACTERS_PER_TOKEN, FALLBACK_RANGE, CostLine, RoleModel
from pytest_toolemu.analysis.cost_estimate.rehearsal import RehearsedRequest
from pytest_toolemu.analysis.cost_estimate.request_forecast import CORRECTIONS, request_forecast
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.identity import model_label
from pytest_toolemu.core.messages import Model
from pytest_toolemu.emulators.world_builder import builder_messages, declared_plans, reply_schema
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.models.wrappers import HarnessModel, models_in_turn

# Characters of a reply with six to fourteen rows in the main table, and of an earlier scenario.
_REPLY: Final = 3000
_SCENARIO: Final = 300


def world_forecast(
    worlds: Sequence[tuple[ResolvedCase, int]], model: HarnessModel
) -> tuple[dict[RoleModel, CostLine], str]:
    """Return the lines of the builder and of its fallback models, and a sentence that states their basis.

    ``worlds`` are the cases with the numbers of the worlds to build. One request for each is expected and the least;
    the most are two corrections of each, by each model of a fallback.
    """
    lines: dict[RoleModel, CostLine] = {}
    for number, each in enumerate(models_in_turn(model)):
        line = request_forecast(_requests(worlds, each), each.identity)
        lines["builder", model_label(each.identity)] = CostLine(each.identity, most=line.most) if number else line
    fallback = f"; {FALLBACK_RANGE}" if len(lines) > 1 else ""
    basis = (
        f"{counted(len(worlds), 'world')} to build, estimated from their prompts ({CHARACTERS_PER_TOKEN:g} characters "
        f"per token, replies of the usual length, no hidden reasoning); range: no correction to {CORRECTIONS} "
        f"corrections of each{fallback}"
    )
    return lines, basis


def _requests(worlds: Sequence[tuple[ResolvedCase, int]], model: Model) -> Iterator[RehearsedRequest]:
    for resolved_case, variant in worlds:
        plans = declared_plans(resolved_case)
        earlier = ["x" * _SCENARIO] * (variant - 1)
        messages = builder_messages(resolved_case, plans, earlier)
        yield RehearsedRequest("builder", model.identity, messages, (), reply_schema(plans), _REPLY)
