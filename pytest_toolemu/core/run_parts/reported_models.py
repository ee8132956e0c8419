"""The models that endpoints report to have answered, which show that a name now stands for another snapshot."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.core.messages import ModelCall
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.settings import OFFICIAL_URLS


class ReportedModel(Record):
    """A model as it was requested, and as the endpoint named it in its replies."""

    requested: str = Field(
        description="Model that was requested, as `provider:name`, with the URL of a compatible endpoint"
    )
    reported: str = Field(description="Model name in the endpoint's replies")


def reported_models_of(calls: Iterable[ModelCall]) -> tuple[ReportedModel, ...]:
    """Return each model that answered under the name that its endpoint reported, sorted; some endpoints report none."""
    pairs = {(_requested(call), call.reply.model) for call in calls if call.reply is not None and call.reply.model}
    return tuple(ReportedModel(requested=requested, reported=reported) for requested, reported in sorted(pairs))


def _requested(call: ModelCall) -> str:
    """Return ``provider:name``, and any URL but an official one: two servers may call different models by one name."""
    url = call.model.get("base_url")
    return provider_and_name(call.model) + (f"@{url}" if url and url not in OFFICIAL_URLS.values() else "")
