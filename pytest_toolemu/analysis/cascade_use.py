"""How often each stage of a cascade decided, and what the strong judge would have cost in the other runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.messages import AskingStage, Stage
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.verdict import STAGE_NAMES, Verdict
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.usd import usd_text
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.models.pricing import Cost, Prices, costs_of


class CascadeUse(Record):
    """How a cascade formed one verdict; ``cheap`` and ``strong`` are what the requests to its judges cost."""

    evaluator: str
    metric: Metric
    decided_by: Stage
    is_strong_asked: bool
    cheap: Cost = Cost()
    strong: Cost = Cost()


@dataclass(frozen=True)
class CascadeTotal:
    """The use of one cascade for one metric in many runs."""

    uses: tuple[CascadeUse, ...]

    @property
    def decided(self) -> dict[Stage, int]:
        """The number of verdicts that each stage decided."""
        counts = Counter(use.decided_by for use in self.uses)
        return {stage: counts[stage] for stage in STAGE_NAMES}

    @property
    def not_asked(self) -> int:
        """The number of verdicts for which the strong judge was not asked."""
        return sum(not use.is_strong_asked for use in self.uses)

    @property
    def cheap(self) -> Cost:
        """What the requests to the cheap judge cost."""
        return sum((use.cheap for use in self.uses), Cost())

    @property
    def strong(self) -> Cost:
        """What the requests to the strong judge cost."""
        return sum((use.strong for use in self.uses), Cost())

    @property
    def saved_tokens(self) -> int | None:
        """Estimated tokens that the strong judge did not use; None if it was never asked, so the saving is unknown."""
        strong = self.strong
        tokens = strong.input + strong.output
        return round(tokens * self._not_asked_per_asked) if tokens else None

    @property
    def saved_usd(self) -> float | None:
        """Estimated cost of the strong judge that was avoided, minus the cost of the cheap judge; None if unknown."""
        if not self.strong.calls or self.strong.unknown or self.cheap.unknown:
            return None
        return self.strong.usd * self._not_asked_per_asked - self.cheap.usd

    @property
    def _not_asked_per_asked(self) -> float:
        asked = len(self.uses) - self.not_asked
        return self.not_asked / asked if asked else 0.0

    @property
    def line(self) -> str:
        """The cascade and its use in one line."""
        return f"{self.name}: {self.text}"

    @property
    def name(self) -> str:
        """The cascade and the metric."""
        return f"{self.uses[0].evaluator}, {self.uses[0].metric}"

    @property
    def text(self) -> str:
        """How many verdicts each stage decided, and about how much that saved."""
        decided = ", ".join(f"{STAGE_NAMES[stage]} {count:,}" for stage, count in self.decided.items())
        head = f"{counted(len(self.uses), 'verdict')}, decided by {decided}"
        return f"{head}; strong judge not asked for {self.not_asked:,}{self._saved}"

    @property
    def _saved(self) -> str:
        if not self.not_asked:
            return ""
        if self.saved_tokens is None:
            return "; the saving is unknown, because it was never asked"
        usd = self.saved_usd
        cost = ""
        if usd is not None:
            saved = f"{usd_text(abs(usd))} {'less' if usd >= 0 else 'more'}"
            cost = f"; including the cheap judge, about USD {saved} than asking the strong judge for all verdicts"
        return f", which saved about {self.saved_tokens:,} of its tokens{cost}"


def cascade_uses(run: Run, prices: Callable[[], Prices] | None) -> tuple[CascadeUse, ...]:
    """Return the use of each cascade that judged a run; without ``prices`` the costs are unknown."""
    return tuple(
        CascadeUse(
            evaluator=verdict.evaluator,
            metric=verdict.metric,
            decided_by=verdict.cascade.decided_by,
            is_strong_asked=verdict.cascade.is_strong_asked,
            cheap=_cost(run, verdict, "cheap", prices),
            strong=_cost(run, verdict, "strong", prices),
        )
        for verdict in run.verdicts
        if verdict.cascade is not None
    )


def _cost(run: Run, verdict: Verdict, stage: Stage, prices: Callable[[], Prices] | None) -> Cost:
    """Return what the requests of a stage cost when they were sent, also if they were replayed now."""
    asked_by = AskingStage(cascade=verdict.evaluator, stage=stage)
    calls = [
        call
        for call in run.model_calls
        # A reply has the name of its rubric, which begins with that of the metric.
        if call.asked_by == asked_by and (call.schema_name or "").startswith(verdict.metric)
    ]
    if not calls:
        return Cost()
    return costs_of(calls, prices() if prices is not None else Prices(()))["evaluator"]


def cascade_totals(uses: Iterable[CascadeUse]) -> list[CascadeTotal]:
    """Return the total of each cascade and metric, in the order in which they first occur."""
    by_cascade: dict[tuple[str, Metric], list[CascadeUse]] = {}
    for use in uses:
        by_cascade.setdefault((use.evaluator, use.metric), []).append(use)
    return [CascadeTotal(tuple(several)) for several in by_cascade.values()]
