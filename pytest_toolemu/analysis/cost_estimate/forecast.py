"""Forecasts the tokens and the cost of a session: an expected value, its range, and the basis of both."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.analysis.cost_estimate.rehearsal import DOUBT, RehearsedDialogue, RehearsedRequest, rehearse
from pytest_toolemu.core.identity import provider_and_name
from pytest_toolemu.core.messages import Role, Usage
from pytest_toolemu.core.run_file import MAX_RUN_BYTES
from pytest_toolemu.core.run_spec import RunSpec
from pytest_toolemu.evaluators.cascade import CascadeEvaluator
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.files.regular_files import read_regular
from pytest_toolemu.models.pricing import Prices

# Mean tool calls of a run in the 144 cases of ToolEmu with its own agents (4.7 agent, 3.7 emulator requests).
USUAL_CALLS: Final = 4
USUAL_REPLIES: Final = 1
"""Replies of the user in a conversation: one question about what the case leaves open."""
DOUBT_RANGE: Final = f"a cheap judge leaves {DOUBT:.0%} of its verdicts to the strong judge, range: none to all"
"""The basis of an estimate with a cascade."""

FALLBACK_RANGE: Final = (
    "a fallback model is expected to get no requests, and gets at most those of all models before it"
)
"""What an estimate assumes about fallback models."""
# Of cl100k_base in these prompts, measured by benchmarks/tokens: 4.1 for the agent, 4.3 for other roles.
CHARACTERS_PER_TOKEN: Final = 4.2
# The number of runs to rehearse; the other runs are assumed to be similar.
_SAMPLE: Final = 40
# With fewer recorded runs than this, the rehearsal is the better estimate.
_MIN_RECORDED: Final = 5
_MAX_FILES_READ: Final = 400

RoleModel = tuple[Role, str]
"""A role and its model as ``provider:name``."""

UsageByRole = dict[RoleModel, tuple[Mapping[str, Any], Usage]]
"""The identity of each model, and what it used."""


@dataclass
class CostLine:
    """The forecast of one role and model: the expected usage, and the ends of its range.

    ``batch`` says whether the requests are sent in batches, at their price.
    """

    model: Mapping[str, Any]
    expected: Usage = field(default_factory=Usage)
    least: Usage = field(default_factory=Usage)
    most: Usage = field(default_factory=Usage)
    batch: bool = False

    def usd(self, prices: Prices) -> tuple[float, float, float] | None:
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


@dataclass(frozen=True)
class Forecast:
    """The forecast by role and model, and sentences that state its basis."""

    lines: dict[RoleModel, CostLine]
    basis: tuple[str, ...]


async def forecast(planned: Sequence[RunSpec], max_steps: int, recorded: Iterable[Path]) -> Forecast:
    """Forecast from records with the same components if there are enough, or else from a rehearsal of the prompts."""
    groups: dict[str, list[RunSpec]] = {}
    for run in planned:
        groups.setdefault(_group(run.identity.model_dump(mode="json")), []).append(run)
    recorded_usage = _recorded(recorded, set(groups))
    lines: dict[RoleModel, CostLine] = {}
    basis = []
    for key, runs in groups.items():
        if len(recorded_usage.get(key, ())) >= _MIN_RECORDED:
            basis.append(_from_records(recorded_usage[key], len(runs), lines))
        else:
            basis.append(await _from_prompts(runs, max_steps, lines))
    return Forecast(lines, tuple(dict.fromkeys(basis)))


def _from_records(recorded_usage: list[UsageByRole], runs: int, lines: dict[RoleModel, CostLine]) -> str:
    for who in {who for each in recorded_usage for who in each}:
        model = next(each[who][0] for each in recorded_usage if who in each)
        usages = [each[who][1] if who in each else Usage() for each in recorded_usage]
        _add(lines, who, model, *_predicted(usages, runs))
    return (
        f"{counted(runs, 'run')}, estimated from {counted(len(recorded_usage), 'recorded run')} of the same agent, "
        "emulator, and evaluators; "
        "range: 95 % prediction interval, with no prompt cache at the upper end of USD"
    )


def _predicted(usages: list[Usage], runs: int) -> tuple[Usage, Usage, Usage]:
    """Return the usage of further runs: the mean, and the 95 % prediction interval of their sum."""
    fields = {name: [getattr(usage, name) for usage in usages] for name in Usage.model_fields}
    ends: list[dict[str, int]] = [{}, {}, {}]
    for name, values in fields.items():
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
        margin = 2 * math.sqrt(variance * (runs + runs**2 / len(values)))
        for target, value in zip(ends, (0.0, -margin, margin), strict=True):
            target[name] = max(0, round(runs * mean + value))
    expected, least, most = (Usage(**values) for values in ends)
    return expected, least, most


async def _from_prompts(runs: list[RunSpec], max_steps: int, lines: dict[RoleModel, CostLine]) -> str:
    step = max(1, math.ceil(len(runs) / _SAMPLE))
    chosen = runs[::step]
    counts = (min(USUAL_CALLS, max_steps), 0, max_steps)
    has_fallback = False
    for position, calls in enumerate(counts):
        starts: dict[RoleModel, str] = {}
        used: dict[tuple[RoleModel, float], tuple[Mapping[str, Any], Usage]] = {}
        for run in chosen:
            requests = await rehearse(
                run.resolved_case,
                run.agent,
                run.emulator,
                run.evaluators,
                calls,
                dialogue=_dialogue(run, (USUAL_REPLIES, 0, run.limits.turns - 1)[position]),
            )
            has_fallback |= any(request.model.get("fallback") for request in requests)
            for who, shares, model, usage in _used(requests, starts):
                key = who, shares[position]
                used[key] = model, used[key][1] + usage if key in used else usage
        for (who, share), (model, usage) in used.items():
            bounds = [Usage(), Usage(), Usage()]
            bounds[position] = scaled(usage, share * len(runs) / len(chosen))
            _add(lines, who, model, *bounds)
    turns = max(run.limits.turns for run in runs)
    replies = f" and {counted(USUAL_REPLIES, 'message')} of the user"
    most = f" and at most {turns - 1} from the user" if turns > 1 else ""
    has_cascade = any(isinstance(evaluator, CascadeEvaluator) for run in runs for evaluator in run.evaluators)
    doubt = f"; {DOUBT_RANGE}" if has_cascade else ""
    fallback = f"; {FALLBACK_RANGE}" if has_fallback else ""
    some = f"{len(chosen)} of them, " if len(chosen) < len(runs) else ""
    return (
        f"{counted(len(runs), 'run')}, estimated from their prompts ({some}{CHARACTERS_PER_TOKEN:g} characters per "
        "token, replies of the usual length, no hidden reasoning, no repairs) with "
        f"{counted(counts[0], 'tool call')}{replies if turns > 1 else ''} per run; range: from no call to "
        f"{counted(max_steps, 'call')}{most} in each, with no prompt cache at the upper end of USD"
        f"{doubt}{fallback}"
    )


def _dialogue(run: RunSpec, replies: int) -> RehearsedDialogue | None:
    """Return the dialogue of a run with this number of replies, or as many as its turns permit; None without a user."""
    if run.user is None:
        return None
    return RehearsedDialogue(run.user, min(replies, run.limits.turns - 1), run.limits.turns)


def _used(
    requests: list[RehearsedRequest], starts: dict[RoleModel, str]
) -> Iterator[tuple[RoleModel, tuple[float, float, float], Mapping[str, Any], Usage]]:
    """Yield the tokens of each request, and the shares of runs in which it is sent.

    Providers cache the common beginning of prompts, so the cached part of a request is what it shares with the request
    before it, or with the first request of another run.
    """
    former: dict[RoleModel, str] = {}
    for request in requests:
        who = (request.role, provider_and_name(request.model))
        before = former.get(who) or starts.get(who, "")
        cached = len(commonprefix([before, request.text]))  # noqa: RUF071  (these are not paths)
        former[who] = request.text
        starts.setdefault(who, request.text)
        yield who, request.shares, request.model, request_usage(len(request.text), cached, request.reply)


def request_usage(length: int, cached: int, reply: int) -> Usage:
    """Return the usage of one request, from the characters of its prompt, of the cached part, and of the reply."""
    tokens = [round(characters / CHARACTERS_PER_TOKEN) for characters in (length, cached, reply)]
    return Usage(calls=1, input=tokens[0], cached=tokens[1], output=tokens[2])


def scaled(usage: Usage, factor: float) -> Usage:
    """Return a multiple of a usage, rounded to whole tokens and requests."""
    return Usage(**{name: round(getattr(usage, name) * factor) for name in Usage.model_fields})


def _add(lines: dict[RoleModel, CostLine], who: RoleModel, model: Mapping[str, Any], *parts: Usage) -> None:
    line = lines.setdefault(who, CostLine(model))
    expected, least, most = parts
    line.expected, line.least, line.most = line.expected + expected, line.least + least, line.most + most


def _group(identity: Mapping[str, Any]) -> str:
    """Return a key that is equal for runs with the same model requests; checks make no requests and are ignored."""
    judges = [judge for judge in identity["evaluators"] if judge.get("kind") != "checks"]
    return json.dumps({**identity, "evaluators": judges}, sort_keys=True, default=str)


def _recorded(paths: Iterable[Path], groups: set[str]) -> dict[str, list[UsageByRole]]:
    """Return the usage of recorded runs of these groups, the latest first; unreadable and other files are skipped."""
    usages: dict[str, list[UsageByRole]] = {}
    for path in sorted(paths, key=lambda path: (path.parent.name, path.name), reverse=True)[:_MAX_FILES_READ]:
        try:
            run = json.loads(read_regular(path, MAX_RUN_BYTES))
            key = _group(run["identity"])
            if key not in groups or run["outcome"] not in ("passed", "failed"):
                continue
            usages.setdefault(key, []).append(_of_record(run))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return usages


def _of_record(run: Mapping[str, Any]) -> UsageByRole:
    used: UsageByRole = {}
    for call in run["exchanges"]:
        model = call["model"]
        who: RoleModel = (call["role"], provider_and_name(model))
        usage = Usage(**call["reply"]["usage"])
        used[who] = (model, used[who][1] + usage if who in used else usage)
    return used
