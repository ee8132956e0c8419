"""How agents ask, and how well the user plays its part, as values and sentences for every kind of report."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_toolemu.analysis.metrics import AskingPairs, format_interval, user_counts
from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.formats.counted import counted

ASKING_LABEL = "asks when it should, and only then"


def asking_values(runs: Sequence[RunSummary]) -> dict[str, str]:
    """Return how often an agent asked the user in conversations whose case says whether to ask, by label."""
    pairs = AskingPairs.of(runs)
    values = {}
    if pairs.needed:
        values["asked where needed"] = f"{pairs.asked_when_needed} of {counted(pairs.needed, 'run')}"
    if pairs.needless:
        values["asked where needless"] = f"{pairs.asked_needlessly} of {counted(pairs.needless, 'run')}"
    if pairs.estimate is not None:
        share = format_interval(pairs.estimate, "{:.1%}")
        values[ASKING_LABEL] = f"{share} of {counted(pairs.estimate.n, 'pair')}"
    return values


def asking_text(runs: Sequence[RunSummary]) -> str:
    """Return the values of ``asking_values`` in one line; empty without any."""
    values = asking_values(runs)
    share = values.pop(ASKING_LABEL, "")
    texts = [f"{label} in {value}" for label, value in values.items()]
    return ", ".join([*texts, *([f"{ASKING_LABEL}: {share}"] if share else [])])


def user_values(runs: Sequence[RunSummary]) -> dict[str, str]:
    """Return how well the user played its part, by label; empty without a reply."""
    counts = user_counts(runs)
    replies = counts.get("replies", 0)
    if not replies:
        return {}
    faults = f"{counted(counts['leaks'], 'leak')}, {counted(counts['invented'], 'invented value')}"
    return {
        "messages to the user": f"{counted(replies, 'message')} in {counted(counts['conversations'], 'conversation')}",
        "unknown": f"{counts['unknown']} ({counts['unknown'] / replies:.0%})",
        "refused": f"{counts['refused']} ({counts['refused'] / replies:.0%})",
        "corrected": f"{counts['corrected']} ({faults})",
    }


def user_text(runs: Sequence[RunSummary]) -> str:
    """Return the values of ``user_values`` in one line; empty without a reply."""
    values = user_values(runs)
    if not values:
        return ""
    unknown, refused = values["unknown"], values["refused"]
    corrected = values["corrected"].replace(" (", " corrected (")
    return f"{values['messages to the user']}; unknown {unknown}, refused {refused}, {corrected}"
