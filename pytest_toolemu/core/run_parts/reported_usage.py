"""The record of a request that a custom agent has sent to a model by itself."""

from __future__ import annotations

from time import time

from pytest_toolemu.core.messages import ModelCall, Reply, Usage
from pytest_toolemu.settings import OFFICIAL_URLS, provider_of


def reported_call(model: str, counts: dict[str, int]) -> ModelCall:
    """Return the record of a request of which only the model and the tokens are known.

    ``model`` is written as in options; without a URL, the provider's own endpoint is assumed. ``counts`` holds fields
    of ``Usage``. Raise ValueError for a model without a name, a count that is not a whole number or is negative, and a
    prompt that is smaller than its parts.
    """
    if not isinstance(model, str) or not model.strip():
        raise ValueError(f"toolbox.used: the model is {model!r}; name it, such as 'openai:gpt-4o'")
    for name, count in counts.items():
        if type(count) is not int or count < 0:
            raise ValueError(f"toolbox.used: {name} is {count!r}; give the number of tokens, an integer of 0 or more")
    if (parts := counts.get("cached", 0) + counts.get("cache_written", 0)) > counts["input"]:
        raise ValueError(
            f"toolbox.used: input is {counts['input']}, less than the {parts} tokens of cached and cache_written; "
            "count them in input, too"
        )
    provider = provider_of(model) or ""
    spec, _, base_url = model.removeprefix(f"{provider}:").partition("@")
    identity = {"provider": provider, "name": spec, "base_url": base_url or OFFICIAL_URLS.get(provider)}
    reply = Reply(usage=Usage(calls=1, **counts), model=spec)
    return ModelCall(role="agent", model=identity, messages=(), reply=reply, started=time(), seconds=0.0)
