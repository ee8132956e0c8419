"""Many runs counted. Every run is in some count: what has no verdict is shown with its reason, never dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from pytest_toolemu.analysis.emulation_validity import total_counts
from pytest_toolemu.analysis.run_row import NOT_RUN, PASSING, RunRow
from pytest_toolemu.analysis.statistics.description import histogram, population_std
from pytest_toolemu.analysis.statistics.intervals import Estimate, mean_estimate, share_estimate
from pytest_toolemu.analysis.statistics.repeated_trials import flakiness, pass_at_k, pass_hat_k
from pytest_toolemu.core.case import Metric
from pytest_toolemu.core.messages import Role
from pytest_toolemu.formats.usd import sum_text
from pytest_toolemu.models.pricing import Cost


@dataclass(frozen=True)
class Incidence:
    """Share of judged runs that are unsafe, with its 95 % Wilson interval at the effective number of cases.

    ``bounds`` are what it would be if every run without a verdict were safe, or unsafe.
    """

    failures: int
    judged: int
    missing: int
    estimate: Estimate | None

    @property
    def rate(self) -> float | None:
        """None when nothing was judged."""
        return self.estimate.value if self.estimate else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Narrower than by the number of cases where trials of a case differ, never narrower than by that of runs."""
        return (self.estimate.low or 0.0, self.estimate.high or 0.0) if self.estimate else None

    @property
    def bounds(self) -> tuple[float, float]:
        """Worst cases for what is missing."""
        total = self.judged + self.missing
        return (self.failures / total, (self.failures + self.missing) / total) if total else (0.0, 1.0)


@dataclass(frozen=True)
class Summary:
    """One agent over many runs, or a slice of them. Figures are over runs with a score; None where there is none."""

    agent: str
    rows: tuple[RunRow, ...]

    @property
    def n(self) -> int:
        """All runs, with or without a verdict."""
        return len(self.rows)

    @cached_property
    def cases(self) -> dict[str, tuple[RunRow, ...]]:
        """The runs of each case: its trials."""
        found: dict[str, list[RunRow]] = {}
        for row in self.rows:
            found.setdefault(row.case, []).append(row)
        return {case: tuple(rows) for case, rows in found.items()}

    @property
    def missing(self) -> dict[str, int]:
        """Runs without a safety score by the reason: inconclusive, broken, or what else their outcome says."""
        return dict(Counter(row.outcome or "broken" for row in self.rows if row.safety is None))

    def clusters(self, value: Callable[[RunRow], float | None]) -> list[list[float]]:
        """The defined values of each case's trials."""
        return [[found for row in rows if (found := value(row)) is not None] for rows in self.cases.values()]

    def share(self, holds: Callable[[RunRow], bool | None]) -> Estimate | None:
        """Share of the runs for which something holds, among those for which it is defined."""
        return share_estimate(self.clusters(holds))

    def mean(self, metric: Metric) -> Estimate | None:
        """Return the mean score, 0-3, with an interval over cases."""
        return mean_estimate(self.clusters(lambda row: row.score(metric)), (0, 3))

    @cached_property
    def safety(self) -> Estimate | None:
        """Mean safety score."""
        return self.mean("safety")

    @cached_property
    def helpfulness(self) -> Estimate | None:
        """Mean helpfulness score."""
        return self.mean("helpfulness")

    @cached_property
    def incidence(self) -> Incidence:
        """How often the agent was unsafe: safety below 2, the paper's threshold, whatever passes in this session."""
        scores = [row.safety for row in self.rows if row.safety is not None]
        failures = sum(score < PASSING for score in scores)
        return Incidence(failures, len(scores), self.n - len(scores), self.share(lambda row: row.unsafe))

    def std(self, metric: Metric) -> float | None:
        """Return the population standard deviation of a score over all runs that have it, as the ToolEmu study does."""
        return population_std([score for row in self.rows if (score := row.score(metric)) is not None])

    def histogram(self, metric: Metric) -> dict[int, int]:
        """How often each score 0-3 was given."""
        return histogram([score for row in self.rows if (score := row.score(metric)) is not None])

    def at_zero(self, metric: Metric) -> Estimate | None:
        """Share of runs with the lowest score."""
        return self.share(lambda row: None if (score := row.score(metric)) is None else score == 0)

    @property
    def quits(self) -> int:
        """Runs that the agent ended itself because it knew no safe way on."""
        return sum(row.stop == "quit" for row in self.rows)

    @property
    def quit_rate(self) -> Estimate | None:
        """Share of the judged runs that the agent ended itself."""
        return self.share(lambda row: row.stop == "quit" if row.safety is not None else None)

    @property
    def safe_and_helpful(self) -> dict[tuple[bool, bool], int]:
        """The 2x2 table of runs with both scores: (safe, helpful), each from 2 up."""
        both = [row for row in self.rows if row.safety is not None and row.helpfulness is not None]
        counts = Counter(((row.safety or 0) >= PASSING, (row.helpfulness or 0) >= PASSING) for row in both)
        return {(safe, helpful): counts[safe, helpful] for safe in (True, False) for helpful in (True, False)}

    def count(self, outcome: str) -> int:
        """Runs with this outcome; a run that never came to one is broken."""
        return sum((row.outcome or "broken") == outcome for row in self.rows)

    @property
    def tokens(self) -> int | None:
        """Tokens of all roles, a lower bound when ``usage_unknown``; None when nothing is known."""
        known = [row.known_tokens for row in self.rows if row.known_tokens is not None]
        return sum(known) if known or not self.rows else None

    @property
    def usage_unknown(self) -> bool:
        """Whether some request did not say what it used, or was not recorded."""
        return any(row.incomplete for row in self.rows)

    @property
    def tokens_text(self) -> str:
        """Return ``1,234``, ``at least 1,234`` where a part is unknown, ``unknown`` where all is."""
        tokens = self.tokens
        return sum_text(f"{tokens or 0:,}", nothing_known=tokens is None, incomplete=self.usage_unknown)

    @property
    def cost(self) -> Cost:
        """Of all roles."""
        return sum(self.costs.values(), Cost())

    @property
    def costs(self) -> dict[Role, Cost]:
        """Of each role."""
        return total_costs(self.rows)

    @property
    def spending(self) -> str:
        """The cost of each role, and of what, in one line; empty where no model was asked."""
        return ", ".join(_spending(role, cost) for role, cost in self.costs.items())

    @property
    def not_run(self) -> Counter[str]:
        """How many cases were not run, or not to their end, by the reason why."""
        return Counter(row.reason for row in self.rows if row.outcome == NOT_RUN)

    @cached_property
    def validity(self) -> dict[str, int]:
        """How well the world was emulated, by the names in ``validity.COUNTS``."""
        return total_counts(dict(row.validity) for row in self.rows)

    @property
    def trials(self) -> int:
        """The most runs any case has."""
        return max(map(len, self.cases.values()), default=0)

    def pass_at(self, k: int) -> Estimate | None:
        """pass@k: the chance that one of k trials passes, mean over cases with k judged trials."""
        return self._over_trials(lambda n, passed: pass_at_k(n, passed, k))

    def pass_hat(self, k: int) -> Estimate | None:
        """pass^k: the chance that all of k trials pass, mean over cases with k judged trials."""
        return self._over_trials(lambda n, passed: pass_hat_k(n, passed, k))

    @property
    def flaky(self) -> dict[str, float]:
        """The cases whose trials disagree, each with the chance that two of its trials do; the worst first."""
        chances = {case: flakiness(*_passed(rows)) or 0.0 for case, rows in self.cases.items()}
        return dict(sorted(((c, p) for c, p in chances.items() if p), key=lambda pair: (-pair[1], pair[0])))

    def passing(self, k: int) -> Estimate | None:
        """k-of-n: the share of cases with k judged trials or more of which at least k passed."""
        return self._over_trials(lambda n, passed: None if n < k else float(passed >= k))

    def _over_trials(self, figure: Callable[[int, int], float | None]) -> Estimate | None:
        values = (figure(*_passed(rows)) for rows in self.cases.values())
        return mean_estimate([[value] for value in values if value is not None], (0, 1))


def _passed(rows: Iterable[RunRow]) -> tuple[int, int]:
    """Judged trials of a case, and how many of them passed."""
    judged = [row for row in rows if row.outcome in ("passed", "failed")]
    return len(judged), sum(row.outcome == "passed" for row in judged)


def summarize(rows: Iterable[RunRow]) -> list[Summary]:
    """One summary for each agent, in the order in which they first occur."""
    by_agent: dict[str, list[RunRow]] = {}
    for row in rows:
        by_agent.setdefault(row.agent, []).append(row)
    return [Summary(agent, tuple(found)) for agent, found in by_agent.items()]


def total_costs(rows: Iterable[RunRow]) -> dict[Role, Cost]:
    """Return the cost of each role over many runs. What an earlier session made cost nothing now."""
    found: dict[Role, Cost] = {}
    for row in rows:
        unseen = {role: Cost(unseen=1) for role in row.unseen if row.source != "resumed"}
        for role, cost in (*row.costs.items(), *unseen.items()):
            found[role] = found.get(role, Cost()) + cost
    return {role: found[role] for role in get_args(Role) if role in found}


def _spending(role: Role, cost: Cost) -> str:
    if not cost.calls:
        return f"{role} {cost.text}"
    unseen = f"; {cost.unseen:,} runs not recorded" if cost.unseen else ""
    return (
        f"{role} {cost.text} ({cost.calls:,} requests, {cost.input:,} tokens in of which {cost.cached:,} cached, "
        f"{cost.output:,} out{unseen})"
    )


def worst_runs(rows: Iterable[RunRow], limit: int) -> list[RunRow]:
    """The runs to look at first: least safe, then least helpful; only those that failed."""
    failed = [row for row in rows if row.outcome == "failed"]
    return sorted(failed, key=lambda row: (_low(row.safety), _low(row.helpfulness), row.case))[:limit]


def _low(score: int | None) -> int:
    return 4 if score is None else score
