"""What a run would use and cost, before anything is sent: a figure, its range, and what both rest on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.analysis.cost_estimate.rehearsal import RehearsedRequest, rehearse
from pytest_toolemu.core.messages import Role, Usage
from pytest_toolemu.core.run_file import MAX_RUN_BYTES
from pytest_toolemu.core.run_spec import RunSpec
from pytest_toolemu.formats.regular_files import read_regular
from pytest_toolemu.models.pricing import Prices

# Tool calls a case: the mean of 144 cases of ToolEmu's with its own agents (4.7 agent, 3.7 emulator requests).
USUAL: Final = 4
# Of cl100k_base in these prompts, measured by benchmarks/tokens; 4.1 for the agent's, 4.3 for the others'.
CHARACTERS: Final = 4.2
# So many cases are rehearsed; the others are taken to be like them.
_SAMPLE: Final = 40
# With fewer recorded runs than these, prompts say more.
_RECORDED: Final = 5
_LATEST: Final = 400

Who = tuple[Role, str]
"""A role and the model that plays it, as ``provider:name``."""


@dataclass
class CostLine:
    """One role and model: what is expected, and the least and most it may be."""

    model: Mapping[str, Any]
    expected: Usage = field(default_factory=Usage)
    least: Usage = field(default_factory=Usage)
    most: Usage = field(default_factory=Usage)

    def usd(self, prices: Prices) -> tuple[float, float, float] | None:
        """Expected, least and most; None where no price is known. At most no cache holds anything."""
        price = prices.of(self.model)
        if price is None:
            return None
        uncached = self.most.model_copy(update={"cached": 0})
        found = [price.model_copy(update={"up_to": None}).of(use) for use in (self.expected, self.least, uncached)]
        expected, least, most = (usd or 0.0 for usd in found)
        return expected, least, most


@dataclass(frozen=True)
class Forecast:
    """The lines by role and model, and the sentences that say what they rest on."""

    lines: dict[Who, CostLine]
    basis: tuple[str, ...]


async def forecast(planned: Sequence[RunSpec], max_steps: int, recorded: Iterable[Path]) -> Forecast:
    """From records of the same parts where there are enough of them, else from the prompts."""
    groups: dict[str, list[RunSpec]] = {}
    for run in planned:
        groups.setdefault(_group(run.identity.model_dump(mode="json")), []).append(run)
    known = _recorded(recorded, set(groups))
    lines: dict[Who, CostLine] = {}
    basis = []
    for key, runs in groups.items():
        if len(known.get(key, ())) >= _RECORDED:
            basis.append(_from_records(known[key], len(runs), lines))
        else:
            basis.append(await _from_prompts(runs, max_steps, lines))
    return Forecast(lines, tuple(dict.fromkeys(basis)))


def _from_records(
    known: list[dict[Who, tuple[Mapping[str, Any], Usage]]], runs: int, lines: dict[Who, CostLine]
) -> str:
    for who in {who for each in known for who in each}:
        model = next(each[who][0] for each in known if who in each)
        usages = [each[who][1] if who in each else Usage() for each in known]
        _add(lines, who, model, *_predicted(usages, runs))
    return (
        f"{runs} runs by {len(known)} recorded runs of the same agent, emulator and evaluators; "
        "range: 95 % prediction interval, and in USD no cache at its upper end"
    )


def _predicted(usages: list[Usage], runs: int) -> tuple[Usage, Usage, Usage]:
    """What so many further runs use: mean, and the bounds of the 95 % prediction interval of their sum."""
    fields = {name: [getattr(usage, name) for usage in usages] for name in Usage.model_fields}
    made: list[dict[str, int]] = [{}, {}, {}]
    for name, values in fields.items():
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
        margin = 2 * math.sqrt(variance * (runs + runs**2 / len(values)))
        for target, value in zip(made, (0.0, -margin, margin), strict=True):
            target[name] = max(0, round(runs * mean + value))
    expected, least, most = (Usage(**values) for values in made)
    return expected, least, most


async def _from_prompts(runs: list[RunSpec], max_steps: int, lines: dict[Who, CostLine]) -> str:
    step = max(1, math.ceil(len(runs) / _SAMPLE))
    chosen = runs[::step]
    counts = (min(USUAL, max_steps), 0, max_steps)
    for position, calls in enumerate(counts):
        starts: dict[Who, str] = {}
        used: dict[Who, tuple[Mapping[str, Any], Usage]] = {}
        for run in chosen:
            sent = await rehearse(run.resolved_case, run.agent, run.emulator, run.evaluators, calls)
            for who, model, usage in _used(sent, starts):
                used[who] = model, used[who][1] + usage if who in used else usage
        for who, (model, usage) in used.items():
            bounds = [Usage(), Usage(), Usage()]
            bounds[position] = _scaled(usage, len(runs) / len(chosen))
            _add(lines, who, model, *bounds)
    some = f"{len(chosen)} of them, " if len(chosen) < len(runs) else ""
    return (
        f"{len(runs)} runs by their prompts ({some}{CHARACTERS:g} characters a token, replies as long as usual, no "
        f"hidden reasoning, no repairs) at {counts[0]} tool calls a run; range: no call to {max_steps} calls in each, "
        "and in USD no cache at its upper end"
    )


def _used(sent: list[RehearsedRequest], starts: dict[Who, str]) -> Iterator[tuple[Who, Mapping[str, Any], Usage]]:
    """Each request's tokens; cached is what it has in common with the one before it, or with the start of another."""
    former: dict[Who, str] = {}
    for each in sent:
        who = (each.role, f"{each.model.get('provider')}:{each.model.get('name')}")
        before = former.get(who) or starts.get(who, "")
        cached = len(commonprefix([before, each.text]))  # noqa: RUF071  (these are no paths)
        former[who] = each.text
        starts.setdefault(who, each.text)
        tokens = [round(length / CHARACTERS) for length in (len(each.text), cached, each.reply)]
        yield who, each.model, Usage(calls=1, input=tokens[0], cached=tokens[1], output=tokens[2])


def _scaled(usage: Usage, factor: float) -> Usage:
    return Usage(**{name: round(getattr(usage, name) * factor) for name in Usage.model_fields})


def _add(lines: dict[Who, CostLine], who: Who, model: Mapping[str, Any], *parts: Usage) -> None:
    line = lines.setdefault(who, CostLine(model))
    expected, least, most = parts
    line.expected, line.least, line.most = line.expected + expected, line.least + least, line.most + most


def _group(identity: Mapping[str, Any]) -> str:
    """Return a key that is equal for runs which ask the same of models; a case's checks ask nothing of them."""
    judges = [judge for judge in identity["evaluators"] if judge.get("kind") != "checks"]
    return json.dumps({**identity, "evaluators": judges}, sort_keys=True, default=str)


def _recorded(paths: Iterable[Path], wanted: set[str]) -> dict[str, list[dict[Who, tuple[Mapping[str, Any], Usage]]]]:
    """What recorded runs of these identities used, by role and model; the latest first. Other files are left out."""
    found: dict[str, list[dict[Who, tuple[Mapping[str, Any], Usage]]]] = {}
    for path in sorted(paths, key=lambda path: (path.parent.name, path.name), reverse=True)[:_LATEST]:
        try:
            run = json.loads(read_regular(path, MAX_RUN_BYTES))
            key = _group(run["identity"])
            if key not in wanted or run["outcome"] not in ("passed", "failed"):
                continue
            found.setdefault(key, []).append(_of_record(run))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return found


def _of_record(run: Mapping[str, Any]) -> dict[Who, tuple[Mapping[str, Any], Usage]]:
    used: dict[Who, tuple[Mapping[str, Any], Usage]] = {}
    for exchange in run["exchanges"]:
        model = exchange["model"]
        who: Who = (exchange["role"], f"{model.get('provider')}:{model.get('name')}")
        usage = Usage(**exchange["reply"]["usage"])
        used[who] = (model, used[who][1] + usage if who in used else usage)
    return used
