"""Requests whose reply schema could not be sent as structured output, and was part of the prompt instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.formats.counted import counted

if TYPE_CHECKING:
    from pytest_toolemu.core.messages import ModelCall

Fallback = tuple[str, str, int]
"""The schema and its model, why it was not sent, and in how many requests."""


def fallbacks_of(calls: Iterable[ModelCall]) -> tuple[Fallback, ...]:
    """Count the replies whose schema was not sent, by schema, model, and reason."""
    counts = Counter(
        (f"{call.schema_name} from {provider_and_name(call.model)}", call.reply.schema_fallback)
        for call in calls
        if call.reply is not None and call.reply.schema_fallback
    )
    return tuple((schema_and_model, why, count) for (schema_and_model, why), count in counts.items())


def totals(counts_of_runs: Iterable[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Add up the fallbacks, or the refused parameters, of many runs, in alphabetical order."""
    counts: Counter[tuple[str, str]] = Counter()
    for subject, detail, count in counts_of_runs:
        counts[subject, detail] += count
    return [(subject, detail, count) for (subject, detail), count in sorted(counts.items())]


def fallback_text(fallback: Fallback) -> str:
    """State one fallback as a sentence."""
    schema_and_model, _, _ = fallback
    return f"structured output was not available for {schema_and_model} {fallback_note(fallback)}"


def fallback_note(fallback: Fallback) -> str:
    """State how often a fallback occurred and why."""
    _, why, count = fallback
    requests = counted(count, "request")
    return f"in {requests}: {why}; the schema was sent as text, and every reply was validated against it"
