"""Estimate tokens and cost of requests: from recorded runs of the same components, or else from a table by role."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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
# One question about what the case leaves open.
USUAL_REPLIES: Final = 1
CORRECTIONS: Final = 2
"""The most corrections of a reply of a judge, builder, or author."""

# Share of the verdicts of cheap judges that are next to the threshold, in recorded runs of ToolEmu.
_DOUBT: Final = 0.5
_DOUBT_RANGE: Final = f"a cheap judge leaves {_DOUBT:.0%} of its verdicts to the strong judge, range: none to all"
FALLBACK_RANGE: Final = (
    "a fallback model is expected to get no requests, and gets at most those of all models before it"
)
"""What an estimate assumes about fallback models."""

# With fewer recorded runs than this, the table is the better estimate.
_MIN_RECORDED: Final = 5
_MAX_FILES_READ: Final = 400

Triple = tuple[float, float, float]
"""An expected value, the least, and the greatest."""

RoleModel = tuple[Role, str]
"""A role and its model as ``provider:name``."""


@dataclass
class CostLine:
    """The estimate of one role and model: the expected usage, and the ends of its range.

    ``batch`` says whether the requests are sent in batches, at their price.
    """

    model: Mapping[str, Any]
    expected: Usage = field(default_factory=Usage)
    least: Usage = field(default_factory=Usage)
    most: Usage = field(default_factory=Usage)
    batch: bool = False

    def usd(self, prices: Prices) -> Triple | None:
        """Return the expected, least, and greatest cost in USD; None without a known price.

        The greatest cost assumes that no prompt is cached.
        """
        price = prices.of(self.model, batch=self.batch)
        if price is None:
            return None
        uncached = self.most.model_copy(update={"cached": 0})
        costs = [price.model_copy(update={"up_to": None}).of(use) for use in (self.expected, self.least, uncached)]
        expected, least, most = (usd or 0.0 for usd in costs)
        return expected, least, most


class CostEstimate:
    """The estimate by role and model, and sentences that state its basis."""

    def __init__(self, *, batch: bool = False) -> None:
        self.basis: dict[str, None] = {}
        self.has_fallback = False
        self._batch = batch
        self._sums: dict[RoleModel, tuple[Mapping[str, Any], _Tokens]] = {}

    @property
    def lines(self) -> dict[RoleModel, CostLine]:
        """The estimate of each role and model."""
        lines = {}
        for key, (model, sums) in self._sums.items():
            expected, least, most = (Usage(**{name: round(n) for name, n in each.items()}) for each in sums)
            lines[key] = CostLine(model, expected, least, most, self._batch)
        return lines

    def add(self, role: Role, model: Mapping[str, Any], tokens: _Tokens) -> None:
        """Add requests to a model; the models of its fallback may get all of them, and are expected to get none."""
        for number, identity in enumerate(identities_in_turn(model)):
            self.has_fallback |= number > 0
            _, sums = self._sums.setdefault((role, provider_and_name(identity)), (identity, _no_tokens()))
            for position, counts in enumerate(tokens):
                if not number or position == 2:
                    for name, count in counts.items():
                        sums[position][name] = sums[position].get(name, 0) + count

    def include(self, other: CostEstimate) -> None:
        """Add another estimate."""
        self.basis |= other.basis
        self._sums |= other._sums


_Tokens = tuple[dict[str, float], dict[str, float], dict[str, float]]
"""Requests and tokens by the fields of ``Usage``: expected, least, and most. They may be fractions."""


def _no_tokens() -> _Tokens:
    return {}, {}, {}


def _tokens(role: Role, requests: Sequence[int], calls: Sequence[int], shares: Triple) -> _Tokens:
    """Return the tokens of consecutive requests after these calls, which these shares of runs send."""
    expected, least, most = map(_tokens_of, [TYPICAL[role]] * 3, requests, calls, shares)
    return expected, least, most


def _tokens_of(typical: TypicalRequest, requests: int, calls: int, share: float) -> dict[str, float]:
    prompts = [typical.prompt + typical.growth * (calls + number) for number in range(requests)]
    counts = {
        "calls": requests,
        "input": sum(prompts),
        "cached": min(typical.shared, *prompts[:1]) + sum(prompts[:-1]) if prompts else 0,
        "output": requests * typical.reply,
    }
    return {name: share * count for name, count in counts.items()}


_ALL: Final = (1.0, 1.0, 1.0)
_NONE: Final = (0, 0, 0)


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
    result = CostEstimate(batch=batch)
    judged, has_doubt = 0, False
    for evaluator, run in questions:
        for judge, shares in _judges(evaluator) if run.stop in FINISHED else ():
            judged, has_doubt = judged + 1, has_doubt or shares[0] == _DOUBT
            calls = (len(run.steps),) * 3
            result.add("evaluator", judge, _tokens("evaluator", (1, 1, 1 + CORRECTIONS), calls, shares))
    if judged:
        doubt = f"; {_DOUBT_RANGE}" if has_doubt else ""
        result.basis[f"{counted(judged, 'judgment')}, {_corrected(result)}{doubt}"] = None
    return result


def estimate_requests(role: Role, model: Mapping[str, Any], count: int, what: str) -> CostEstimate:
    """Estimate requests whose replies may be corrected twice, such as those for worlds; ``what`` names them."""
    result = CostEstimate()
    if count:
        result.add(role, model, _tokens(role, (1, 1, 1 + CORRECTIONS), _NONE, (count, count, count)))
        result.basis[f"{what}, {_corrected(result)}"] = None
    return result


def _corrected(result: CostEstimate) -> str:
    fallback = f"; {FALLBACK_RANGE}" if result.has_fallback else ""
    return (
        "estimated from requests of the usual length, without hidden reasoning; range: no correction to "
        f"{CORRECTIONS} corrections of each, with no prompt cache at the upper end of USD{fallback}"
    )


def _add_from_table(result: CostEstimate, runs: Sequence[RunSpec]) -> None:
    for run in runs:
        for role, model, tokens in _requests(run):
            result.add(role, model, tokens)
    max_steps, turns = (max(getattr(run.limits, name) for run in runs) for name in ("max_steps", "turns"))
    has_cascade = any(isinstance(evaluator, CascadeEvaluator) for run in runs for evaluator in run.evaluators)
    replies = f" and {counted(USUAL_REPLIES, 'message')} of the user" if turns > 1 else ""
    most = f" and at most {turns - 1} from the user" if turns > 1 else ""
    doubt = f"; {_DOUBT_RANGE}" if has_cascade else ""
    fallback = f"; {FALLBACK_RANGE}" if result.has_fallback else ""
    result.basis[
        f"{counted(len(runs), 'run')}, estimated from requests of the usual length (no hidden reasoning, no repairs) "
        f"with {counted(min(USUAL_CALLS, max_steps), 'tool call')}{replies} per run; range: from no call to "
        f"{counted(max_steps, 'call')}{most} in each, with no prompt cache at the upper end of USD{doubt}{fallback}"
    ] = None


def _requests(run: RunSpec) -> Iterator[tuple[Role, Mapping[str, Any], _Tokens]]:
    """Yield the requests of each role and model in a run; custom components are assumed to send none."""
    max_steps, last = run.limits.max_steps, run.limits.turns - 1
    calls = (min(USUAL_CALLS, max_steps), 0, max_steps)
    replies = (min(USUAL_REPLIES, last), 0, last) if run.user is not None else _NONE
    if run.identity.agent.get("kind") in ("tool_calling", "react"):
        requests = [one + other + 1 for one, other in zip(calls, replies, strict=True)]
        yield "agent", run.identity.agent["model"], _tokens("agent", requests, _NONE, _ALL)
    if run.identity.emulator.get("kind") == "simulated":
        share = _emulated_share(run)
        yield "emulator", run.identity.emulator["model"], _tokens("emulator", calls, _NONE, (share,) * 3)
    if run.identity.user and run.identity.user.get("kind") == "simulated":
        requests = [min(count + 1, last) for count in replies]
        yield "user", run.identity.user["model"], _tokens("user", requests, _NONE, _ALL)
    for judge, shares in (each for evaluator in run.evaluators for each in _judges(evaluator)):
        yield "evaluator", judge, _tokens("evaluator", (1, 1, 1), calls, shares)


def _emulated_share(run: RunSpec) -> float:
    """Return the share of tools whose calls no rows answer."""
    kits = run.resolved_case.toolkits
    has_rows = run.resolved_case.case.world
    answered = [tool.operation is not None and kit.name in has_rows for kit in kits for tool in kit.tools]
    return answered.count(False) / max(1, len(answered))


def _judges(evaluator: Evaluator) -> Iterator[tuple[Mapping[str, Any], Triple]]:
    """Yield the models of an evaluator, with the shares of runs that ask them: a cascade does not always ask all."""
    if isinstance(evaluator, JudgeEvaluator):
        yield evaluator.model.identity, _ALL
    elif isinstance(evaluator, CascadeEvaluator):
        *cheap, strong = (judge.model.identity for judge in evaluator.judges)
        least = 0.0 if evaluator.has_checks and not evaluator.asks_all else 1.0
        for model in cheap:
            yield model, (1.0, least, 1.0)
        yield strong, _ALL if evaluator.asks_all else (_DOUBT if cheap else 1.0, 0.0, 1.0)


_UsageByRole = dict[RoleModel, tuple[Mapping[str, Any], Usage]]


def _add_from_records(result: CostEstimate, recorded: list[_UsageByRole], runs: int) -> None:
    """Add the mean of recorded runs, and the 95 % prediction interval of the sum of further ones."""
    for who in {who for each in recorded for who in each}:
        model = next(each[who][0] for each in recorded if who in each)
        usages = [each[who][1] if who in each else Usage() for each in recorded]
        tokens = _no_tokens()
        for name in Usage.model_fields:
            values = [getattr(usage, name) for usage in usages]
            mean = sum(values) / len(values)
            variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
            margin = 2 * math.sqrt(variance * (runs + runs**2 / len(values)))
            for counts, value in zip(tokens, (0.0, -margin, margin), strict=True):
                counts[name] = max(0, round(runs * mean + value))
        result.add(who[0], model, tokens)
    result.basis[
        f"{counted(runs, 'run')}, estimated from {counted(len(recorded), 'recorded run')} of the same agent, emulator, "
        "and evaluators; range: 95 % prediction interval, with no prompt cache at the upper end of USD"
    ] = None


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
                usages.setdefault(key, []).append(_of_record(run))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return usages


def _of_record(run: Mapping[str, Any]) -> _UsageByRole:
    used: _UsageByRole = {}
    for call in run["model_calls"]:
        model = call["model"]
        who: RoleModel = (call["role"], provider_and_name(model))
        usage = Usage(**call["reply"]["usage"])
        used[who] = (model, used[who][1] + usage if who in used else usage)
    return used
