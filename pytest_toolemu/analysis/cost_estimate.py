"""Estimate tokens and cost of requests: from recorded runs of the same components, or else from a table by role."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, variance
from typing import Any, Final, NamedTuple

from pytest_toolemu.analysis.rejudge import FINISHED
from pytest_toolemu.core.engine import RunSpec
from pytest_toolemu.core.identity import identities_in_turn, provider_and_name
from pytest_toolemu.core.messages import Role, Usage
from pytest_toolemu.core.run import Evaluator, Run
from pytest_toolemu.core.run_file import MAX_RUN_BYTES
from pytest_toolemu.evaluators.cascade import CascadeEvaluator
from pytest_toolemu.evaluators.model_judge import JudgeEvaluator
from pytest_toolemu.formats.file_access import read_regular
from pytest_toolemu.formats.text import counted
from pytest_toolemu.models.pricing import Prices


class TypicalRequest(NamedTuple):
    """Tokens of the requests of a role in a run.

    ``prompt`` is the first prompt of a run without tool calls, of which ``shared`` tokens are those of other runs, so
    that providers cache them. ``growth`` is what a call adds to later prompts, which repeat the prompt before them.
    """

    prompt: int
    growth: int
    shared: int
    reply: int

    def tokens(self, requests: int, calls: int = 0, share: float = 1.0) -> dict[str, float]:
        """Return the tokens of consecutive requests after these calls, by the fields of ``Usage``, times the share."""
        prompts = [self.prompt + self.growth * (calls + number) for number in range(requests)]
        cached = min(self.shared, *prompts[:1]) + sum(prompts[:-1]) if prompts else 0
        counts = {"calls": requests, "input": sum(prompts), "cached": cached, "output": requests * self.reply}
        return {name: share * count for name, count in counts.items()}


# Measured with the shipped cases by benchmarks/tokens, at 4.2 characters per token. Lengths of replies are medians of
# recorded runs of ToolEmu.
TYPICAL: Final[dict[Role, TypicalRequest]] = {
    "agent": TypicalRequest(2_400, 180, 0, 80),
    "emulator": TypicalRequest(2_800, 300, 1_200, 960),
    "user": TypicalRequest(760, 100, 520, 20),
    "evaluator": TypicalRequest(4_900, 110, 1_480, 790),
    "builder": TypicalRequest(4_600, 800, 1_000, 710),
    "author": TypicalRequest(5_000, 1_200, 2_000, 1_100),
}
# Mean tool calls of a run in the 144 cases of ToolEmu with its own agents (4.7 agent, 3.7 emulator requests).
USUAL_CALLS: Final = 4
CORRECTIONS: Final = 2
"""The most corrections of a reply of a judge, builder, or author."""

# Share of the verdicts of cheap judges that are next to the threshold, in recorded runs of ToolEmu.
_DOUBT: Final = 0.5
_DOUBT_RANGE: Final = f"a cheap judge leaves {_DOUBT:.0%} of its verdicts to the strong judge, range: none to all"
_FALLBACK_RANGE: Final = (
    "a fallback model is expected to get no requests, and gets at most those of all models before it"
)
# With fewer recorded runs than this, the table is the better estimate.
_MIN_RECORDED: Final = 5
_MAX_FILES_READ: Final = 400

Triple = tuple[float, float, float]
"""An expected value, the least, and the greatest."""

RoleModel = tuple[Role, str]
"""A role and its model as ``provider:name``."""


@dataclass
class CostLine:
    """The estimate of one role and model: requests and tokens by the fields of ``Usage``, which may be fractions.

    ``batch`` says whether the requests are sent in batches, at their price.
    """

    model: Mapping[str, Any]
    batch: bool
    expected: Counter[str] = field(default_factory=Counter)
    least: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)

    def usd(self, prices: Prices) -> Triple | None:
        """Return the expected, least, and greatest cost in USD; None without a known price.

        The greatest cost assumes that no prompt is cached.
        """
        price = prices.of(self.model, batch=self.batch)
        if price is None:
            return None
        uses = (self.expected, self.least, {**self.most, "cached": 0})
        usages = (Usage(**{name: round(count) for name, count in use.items()}) for use in uses)
        expected, least, most = (price.model_copy(update={"up_to": None}).of(usage) or 0.0 for usage in usages)
        return expected, least, most


@dataclass
class CostEstimate:
    """The estimate by role and model, and sentences that state its basis; ``ranges`` are assumptions of its ranges."""

    batch: bool = False
    lines: dict[RoleModel, CostLine] = field(default_factory=dict)
    basis: dict[str, None] = field(default_factory=dict)
    ranges: dict[str, None] = field(default_factory=dict)

    def add(self, role: Role, model: Mapping[str, Any], tokens: Iterable[Mapping[str, float]]) -> None:
        """Add requests to a model; the models of its fallback may get all of them, and are expected to get none."""
        expected, least, most = tokens
        for number, identity in enumerate(identities_in_turn(model)):
            line = self.lines.setdefault((role, provider_and_name(identity)), CostLine(identity, self.batch))
            line.most.update(most)
            if number:
                self.ranges[_FALLBACK_RANGE] = None
            else:
                line.expected.update(expected)
                line.least.update(least)

    def add_judges(self, evaluator: Evaluator, most: int, calls: Sequence[int]) -> int:
        """Add the requests of an evaluator about a run with these calls; return the number of models that it asks.

        A cascade does not always ask all of its judges.
        """
        shares = [(1.0, 1.0, 1.0)]
        if isinstance(evaluator, CascadeEvaluator):
            judges, asks_all = evaluator.judges, evaluator.asks_all
            cheap = (1.0, float(asks_all or not evaluator.has_checks), 1.0)
            strong = (1.0, 1.0, 1.0) if asks_all else (_DOUBT if judges[1:] else 1.0, 0.0, 1.0)
            shares = [*[cheap] * (len(judges) - 1), strong]
            if strong[0] == _DOUBT:
                self.ranges[_DOUBT_RANGE] = None
        else:
            judges = (evaluator,) if isinstance(evaluator, JudgeEvaluator) else ()
        for judge, of_runs in zip(judges, shares, strict=False):
            tokens = map(TYPICAL["evaluator"].tokens, (1, 1, most), calls, of_runs)
            self.add("evaluator", judge.model.identity, tokens)
        return len(judges)

    def state(self, basis: str) -> None:
        """Add a sentence on the basis of the requests that were added."""
        self.basis["; ".join((f"{basis}, with no prompt cache at the upper end of USD", *self.ranges))] = None

    def state_corrected(self, subject: str) -> None:
        """Add the basis of requests whose replies may be corrected."""
        self.state(
            f"{subject}, estimated from requests of the usual length, without hidden reasoning; range: no correction "
            f"to {CORRECTIONS} corrections of each"
        )


def estimate_runs(planned: Sequence[RunSpec], recorded: Iterable[Path] = ()) -> CostEstimate:
    """Estimate runs from records with the same components if there are enough, or else from the table."""
    groups: dict[str, list[RunSpec]] = {}
    for run in planned:
        groups.setdefault(_group(run.identity.model_dump(mode="json")), []).append(run)
    recorded_usage = _recorded(recorded, set(groups))
    result = CostEstimate()
    for key, runs in groups.items():
        if len(recorded_usage.get(key, ())) >= _MIN_RECORDED:
            _add_from_records(result, recorded_usage[key], len(runs))
        else:
            _add_from_table(result, runs)
    return result


def estimate_judging(questions: Iterable[tuple[Evaluator, Run]], *, batch: bool) -> CostEstimate:
    """Estimate the requests of each evaluator about each run, with up to two corrections of each reply.

    Runs whose agent did not finish are not judged, and checks make no requests. ``batch`` says that the price is that
    of batches.
    """
    result = CostEstimate(batch)
    judged = sum(
        result.add_judges(evaluator, 1 + CORRECTIONS, [len(run.steps)] * 3)
        for evaluator, run in questions
        if run.stop in FINISHED
    )
    if judged:
        result.state_corrected(counted(judged, "judgment"))
    return result


def estimate_requests(role: Role, model: Mapping[str, Any], count: int, what: str) -> CostEstimate:
    """Estimate requests whose replies may be corrected twice, such as those for worlds; ``what`` names them."""
    result = CostEstimate()
    if count:
        result.add(role, model, (TYPICAL[role].tokens(n, share=count) for n in (1, 1, 1 + CORRECTIONS)))
        result.state_corrected(what)
    return result


def _add_from_table(result: CostEstimate, runs: Sequence[RunSpec]) -> None:
    for run in runs:
        _add_run(result, run)
    max_steps, turns = (max(getattr(run.limits, name) for run in runs) for name in ("max_steps", "turns"))
    replies, most = (" and 1 message of the user", f" and at most {turns - 1} from the user") if turns > 1 else ("", "")
    result.state(
        f"{counted(len(runs), 'run')}, estimated from requests of the usual length (no hidden reasoning, no repairs) "
        f"with {counted(min(USUAL_CALLS, max_steps), 'tool call')}{replies} per run; range: from no call to "
        f"{counted(max_steps, 'call')}{most} in each"
    )


def _add_run(result: CostEstimate, run: RunSpec) -> None:
    """Add the requests of each role and model in a run; custom components are assumed to send none."""
    max_steps, last = run.limits.max_steps, run.limits.turns - 1
    calls = (min(USUAL_CALLS, max_steps), 0, max_steps)
    # The usual reply is to one question about what the case leaves open.
    replies = (min(1, last), 0, last) if run.user is not None else (0, 0, 0)
    agent, emulator, user = run.identity.agent, run.identity.emulator, run.identity.user
    if agent.get("kind") in ("tool_calling", "react"):
        requests = [one + other + 1 for one, other in zip(calls, replies, strict=True)]
        result.add("agent", agent["model"], map(TYPICAL["agent"].tokens, requests))
    if emulator.get("kind") == "simulated":
        kits, has_rows = run.resolved_case.toolkits, run.resolved_case.case.world
        answered = [tool.operation is not None and kit.name in has_rows for kit in kits for tool in kit.tools]
        share = answered.count(False) / max(1, len(answered))
        result.add("emulator", emulator["model"], (TYPICAL["emulator"].tokens(n, share=share) for n in calls))
    if user and user.get("kind") == "simulated":
        result.add("user", user["model"], (TYPICAL["user"].tokens(min(count + 1, last)) for count in replies))
    for evaluator in run.evaluators:
        result.add_judges(evaluator, 1, calls)


_UsageByRole = dict[RoleModel, tuple[Mapping[str, Any], Usage]]


def _add_from_records(result: CostEstimate, recorded: list[_UsageByRole], runs: int) -> None:
    """Add the mean of recorded runs, and the 95 % prediction interval of the sum of further ones."""
    n = len(recorded)
    for who in {who for each in recorded for who in each}:
        used = [each[who] for each in recorded if who in each]
        usages = [*(usage for _, usage in used), *[Usage()] * (n - len(used))]
        tokens: tuple[dict[str, float], ...] = ({}, {}, {})
        for name in Usage.model_fields:
            values = [getattr(usage, name) for usage in usages]
            margin = 2 * math.sqrt(variance(values) * (runs + runs**2 / n))
            for counts, change in zip(tokens, (0.0, -margin, margin), strict=True):
                counts[name] = max(0, round(runs * fmean(values) + change))
        result.add(who[0], used[0][0], tokens)
    result.state(
        f"{counted(runs, 'run')}, estimated from {counted(n, 'recorded run')} of the same agent, emulator, "
        "and evaluators; range: 95 % prediction interval"
    )


def _group(identity: Mapping[str, Any]) -> str:
    """Return a key that is equal for runs with the same model requests; checks make no requests and are ignored."""
    judges = [judge for judge in identity["evaluators"] if judge.get("kind") != "checks"]
    return json.dumps({**identity, "evaluators": judges}, sort_keys=True, default=str)


def _recorded(paths: Iterable[Path], groups: set[str]) -> dict[str, list[_UsageByRole]]:
    """Return the usage of recorded runs of these groups, the latest first; unreadable and other files are skipped."""
    usages: dict[str, list[_UsageByRole]] = {}
    for path in sorted(paths, key=lambda path: (path.parent.name, path.name), reverse=True)[:_MAX_FILES_READ]:
        try:
            run = json.loads(read_regular(path, MAX_RUN_BYTES))
            key = _group(run["identity"])
            if key in groups and run["outcome"] in ("passed", "failed"):
                used: _UsageByRole = {}
                for call in run["model_calls"]:
                    who: RoleModel = (call["role"], provider_and_name(call["model"]))
                    used[who] = (call["model"], used.get(who, ({}, Usage()))[1] + Usage(**call["reply"]["usage"]))
                usages.setdefault(key, []).append(used)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return usages
