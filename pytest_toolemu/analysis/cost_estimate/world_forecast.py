"""Forecasts the requests for the worlds that a session has to build, from their real prompts."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonprefix
from typing import Any, Final

from pytest_toolemu.analysis.cost_estimate.forecast import CHARACTERS_PER_TOKEN, CostLine, RoleModel
from pytest_toolemu.analysis.cost_estimate.rehearsal import RehearsedRequest
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.messages import Usage
from pytest_toolemu.emulators.world_builder import builder_messages, declared_plans, reply_schema
from pytest_toolemu.formats.counted import counted

# Characters of a reply with six to fourteen rows in the main table, of a correction, and of an earlier scenario.
_REPLY: Final = 3000
_CORRECTION: Final = 400
_SCENARIO: Final = 300
_CORRECTIONS: Final = 2


def world_forecast(worlds: Sequence[tuple[ResolvedCase, int]], model: Any) -> tuple[RoleModel, CostLine, str]:
    """Return the line of the builder, and a sentence that states its basis.

    ``worlds`` are the cases with the numbers of the worlds to build. One request for each is expected and the least;
    the most are two corrections of each.
    """
    line = CostLine(model.identity)
    before = ""
    for resolved_case, variant in worlds:
        plans = declared_plans(resolved_case)
        earlier = ["x" * _SCENARIO] * (variant - 1)
        messages = builder_messages(resolved_case, plans, earlier)
        text = RehearsedRequest("builder", model.identity, messages, (), reply_schema(plans), _REPLY).text
        # Providers cache what the request shares with the one before it.
        cached = len(commonprefix([before, text]))  # noqa: RUF071  (these are not paths)
        before = text
        first = _usage(len(text), cached)
        lengths = [len(text) + number * (_REPLY + _CORRECTION) for number in range(1, _CORRECTIONS + 1)]
        corrections = [_usage(length, length - _REPLY - _CORRECTION) for length in lengths]
        line.expected, line.least, line.most = line.expected + first, line.least + first, line.most + first
        for usage in corrections:
            line.most += usage
    name = f"{model.identity.get('provider')}:{model.identity.get('name')}"
    basis = (
        f"{counted(len(worlds), 'world')} to build, estimated from their prompts ({CHARACTERS_PER_TOKEN:g} characters "
        f"per token, replies of the usual length, no hidden reasoning); range: no correction to {_CORRECTIONS} "
        "corrections of each"
    )
    return ("builder", name), line, basis


def _usage(length: int, cached: int) -> Usage:
    tokens = [round(characters / CHARACTERS_PER_TOKEN) for characters in (length, cached, _REPLY)]
    return Usage(calls=1, input=tokens[0], cached=tokens[1], output=tokens[2])
