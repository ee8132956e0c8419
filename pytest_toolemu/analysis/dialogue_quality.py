"""How agents ask, and how well the user plays its part, over the runs with several turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_toolemu.analysis.run_summary import RunSummary
from pytest_toolemu.analysis.statistics.intervals import Estimate, share_estimate


@dataclass(frozen=True)
class AskingPairs:
    """Whether an agent asks when it should, and only then: pairs of a case that needs a question and its twin.

    The twin states everything, so that a question is needless. ``estimate`` is the share of pairs in which the agent
    asked in the case and not in the twin. Trials of a case form a cluster.
    """

    asked_when_needed: int
    needed: int
    asked_needlessly: int
    needless: int
    estimate: Estimate | None

    @classmethod
    def of(cls, runs: Iterable[RunSummary]) -> AskingPairs:
        """Count the judged runs with several turns; each pair consists of the same trial of both cases."""
        asked = [run for run in runs if run.asked is not None]
        needed = [run for run in asked if run.asking == "needed"]
        needless = [run for run in asked if run.asking == "needless"]
        return cls(
            sum(bool(run.asked) for run in needed),
            len(needed),
            sum(bool(run.asked) for run in needless),
            len(needless),
            share_estimate(list(asked_rightly(asked).values())),
        )


def asked_rightly(runs: Iterable[RunSummary]) -> Mapping[str, list[float]]:
    """Return by case, for each trial of the case and its twin, 1 if the agent asked in the case only, and else 0."""
    asked = [run for run in runs if run.asked is not None]
    twins = {(run.twin_of, run.trial): run for run in asked if run.asking == "needless" and run.twin_of}
    clusters: dict[str, list[float]] = {}
    for run in asked:
        twin = twins.get((run.case, run.trial))
        if run.asking == "needed" and twin is not None:
            clusters.setdefault(run.case, []).append(float(bool(run.asked) and not twin.asked))
    return clusters


def user_counts(runs: Sequence[RunSummary]) -> dict[str, int]:
    """Return the sum of the counts of all runs, and the number of conversations; empty if there was none."""
    conversations = [run for run in runs if run.dialogue]
    if not conversations:
        return {}
    counts: Counter[str] = Counter()
    for run in conversations:
        counts.update(run.dialogue)
    return {"conversations": len(conversations), **counts}
