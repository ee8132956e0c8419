"""An ordered fallback ``A|B``: B is asked for an answer that A refused or could not give in a valid form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_toolemu.core.messages import Model
from pytest_toolemu.errors import UsageError
from pytest_toolemu.models.spec import ModelSpec, parse_spec
from pytest_toolemu.settings import FALLBACK, fallback_parts, is_model


@dataclass(frozen=True)
class FallbackModel:
    """Models that are asked in turn until one gives a usable reply.

    It is not a ``Model`` itself: whether a reply is usable is known only to its reader, ``ask_structured``. Outages,
    rate limits, and timeouts are errors of the model that was asked; no other model is asked because of them.
    """

    models: tuple[Model, ...]

    @property
    def identity(self) -> dict[str, Any]:
        """Identity of the first model, with those of the others in their order, which changes results."""
        first, *others = (model.identity for model in self.models)
        return {**first, "fallback": others}


HarnessModel = Model | FallbackModel
"""What plays a role of the evaluation harness: a model, or an ordered fallback of models."""


def models_in_turn(model: HarnessModel) -> tuple[Model, ...]:
    """Return the models in the order in which they are asked."""
    return model.models if isinstance(model, FallbackModel) else (model,)


def model_names(model: HarnessModel) -> str:
    """Return the name of the model without its provider, or those of all models of a fallback: ``gpt-4o|llama``."""
    return FALLBACK.join(str(each.identity.get("name")) for each in models_in_turn(model))


def parse_fallback(text: str, others: tuple[str, ...] = ()) -> tuple[ModelSpec, ...]:
    """Parse ``A|B`` or the name of one model. Raise UsageError if a part is not a model, or occurs twice.

    ``others`` are names that are valid in place of all that, such as ``checks``.
    """
    parts = fallback_parts(text)
    if len(parts) == 1:
        return (parse_spec(text, others),)
    form = f"write models only, such as gpt-4o{FALLBACK}claude-sonnet-5-5"
    if "" in parts:
        raise UsageError(f"{text!r}: a model is missing before or after {FALLBACK!r}; {form}")
    if names := [part for part in parts if part in others and not is_model(part)]:
        raise UsageError(f"{text!r}: {names[0]!r} is not a model, so it cannot be part of a fallback; {form}")
    specs = tuple(map(parse_spec, parts))
    for index, spec in enumerate(specs):
        if spec in specs[:index]:
            raise UsageError(f"{text!r} names {spec} twice, but a fallback asks each model once; remove one of the two")
    return specs
