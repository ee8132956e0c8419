"""Requests that were sent without some of their parameters, because the endpoint refuses these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.formats.counted import counted

if TYPE_CHECKING:
    from pytest_toolemu.core.messages import ModelCall

RefusedParameters = tuple[str, str, int]
"""The model, the parameters, and in how many requests they were left out."""


def refused_parameters_of(calls: Iterable[ModelCall]) -> tuple[RefusedParameters, ...]:
    """Count the replies to requests without refused parameters, by model and parameters."""
    counts = Counter(
        (provider_and_name(call.model), ", ".join(call.reply.refused_parameters))
        for call in calls
        if call.reply is not None and call.reply.refused_parameters
    )
    return tuple((model, names, count) for (model, names), count in counts.items())


def refused_parameter_text(refused: RefusedParameters) -> str:
    """State what one model refused as a sentence."""
    return f"{refused[0]} {refused_parameter_note(refused)}"


def refused_parameter_note(refused: RefusedParameters) -> str:
    """State which parameters a model refused, how often they were left out, and what to do."""
    _, names, count = refused
    return (
        f"refuses {names}, so its defaults applied in {counted(count, 'request')}; "
        "if the values of this session must apply, use another model or endpoint"
    )
