"""``python -m benchmarks.tokens FOLDER``: prompt tokens per case and role, and how many of them cannot be cached.

Every case below FOLDER is rehearsed with the real prompts, toolkits and conversations, and with replies of typical
length; nothing is sent. A token is uncached unless it is part of a prefix that an earlier request has sent.

``--script`` and ``--world=built`` are about ToolEmu's official cases only, and need its files. ``--script=typical``
gives a case the calls of a published run, and then generated ones; ``recorded`` replays each published run. With
``--world=built``, code answers what the importer's declarations cover (see ``benchmarks.scripted_worlds``).
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.rehearsal import RehearsedRequest, Script, rehearse
from benchmarks.scripted_plays import RUNS, basis, calls_line, scripted_plays
from pytest_toolemu.agents.model_agents import ReactAgent, ToolCallingAgent
from pytest_toolemu.core.case import SUFFIX, ResolvedCase
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.core.world.built_world import per_call
from pytest_toolemu.emulators.simulated import SimulatedEmulator
from pytest_toolemu.evaluators.model_judge import JudgeEvaluator

# Agent and emulator together, per case of the original's 144 cases, with 4.7 and 3.7 requests.
ORIGINAL: Final = {"prompt": 42_000, "uncached": 5_800}
GOALS: Final = {"prompt": 24_000, "uncached": 3_200}
CALLS: Final = 3.7
GOALS_IN_WORLDS: Final = {"prompt": 10_500, "requests": 1.5}
"""Agent and emulator together, and the emulator alone, if code answers declared tools."""

ENCODING: Final = "cl100k_base"
"""The encoding with which the original was measured."""

Count = Callable[[str], Sequence[Any]]


class _Model:
    """A model that only has a name, as no request is sent."""

    identity: Final = {"provider": "openai", "name": "any"}


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tokens", description=__doc__)
    parser.add_argument("folder", type=Path, help="what 'toolemu import toolemu' wrote, or any folder of cases")
    parser.add_argument("--calls", type=float, default=CALLS, help="tool calls a case, on average (%(default)s)")
    parser.add_argument("--protocol", choices=("tools", "react"), default="tools")
    parser.add_argument("--mode", choices=("adversarial", "standard"), default="adversarial")
    parser.add_argument("--world", choices=("calls", "built"), default="calls")
    parser.add_argument("--script", choices=("typical", "recorded"), help="take calls from published runs")
    parser.add_argument("--runs", type=Path, default=RUNS, help="file of published runs (%(default)s)")
    options = parser.parse_args()
    resolved_cases = [per_call(load_case(path)) for path in sorted(options.folder.rglob(f"*{SUFFIX}"))]
    if not resolved_cases:
        raise SystemExit(f"{options.folder} has no *{SUFFIX}; give the folder that 'toolemu import toolemu' wrote")
    tokens, unit = tokenizer()
    numbers = list(spread(options.calls, len(resolved_cases)))
    is_built = options.world == "built"
    plays: list[tuple[ResolvedCase, int | Script]] = list(zip(resolved_cases, numbers, strict=True))
    if options.script or is_built:
        kind = options.script or "typical"
        scripted = scripted_plays(resolved_cases, numbers, options.runs, recorded=kind == "recorded", built=is_built)
        plays = [(each.resolved_case, each.calls) for each in scripted]
        print("\n".join(basis(scripted, tokens) if is_built else [calls_line(scripted)]))
    else:
        print(f"{len(resolved_cases)} cases, {options.calls:g} tool calls each on average")
    print(f"tokens: {unit}")
    requests = [each for resolved_case, calls in plays for each in play(resolved_case, calls, options)]
    report(count(requests, tokens), len(plays), comparable=unit == ENCODING, built=is_built)


def spread(mean: float, cases: int) -> Iterator[int]:
    """Return the number of calls of each case, with this mean."""
    return (int(mean * (number + 1)) - int(mean * number) for number in range(cases))


def play(resolved_case: ResolvedCase, calls: int | Script, options: argparse.Namespace) -> list[RehearsedRequest]:
    """Return all requests of one case."""
    model: Any = _Model()
    agent = ReactAgent(model) if options.protocol == "react" else ToolCallingAgent(model)
    judges = [JudgeEvaluator(model, "safety"), JudgeEvaluator(model, "helpfulness")]
    return asyncio.run(rehearse(resolved_case, agent, SimulatedEmulator(model, options.mode), judges, calls))


def tokenizer() -> tuple[Count, str]:
    """Return a tokenizer and its name. tiktoken downloads its vocabulary, so it can fail even if it is installed."""
    try:
        import tiktoken

        encoding = tiktoken.get_encoding(ENCODING)
    except Exception:
        return re.compile(r"\s?\w{1,6}|\s?[^\w\s]|\s+").findall, "approximated: up to six letters, or one sign"
    return lambda text: encoding.encode(text, disallowed_special=()), ENCODING


def count(requests: Sequence[RehearsedRequest], tokens: Count) -> Counter[tuple[str, str]]:
    """Return the requests, prompt tokens and uncached tokens by role; each role has its own cache of prefixes."""
    counts: Counter[tuple[str, str]] = Counter()
    prefixes: dict[str, set[int]] = {}
    for each in requests:
        parts = tokens(each.text)
        role_prefixes = prefixes.setdefault(each.role, set())
        state, cached = 0, 0
        for index, part in enumerate(parts):
            state = hash((state, part))
            if state in role_prefixes:
                cached = index + 1
            role_prefixes.add(state)
        counts[each.role, "requests"] += 1
        counts[each.role, "prompt"] += len(parts)
        counts[each.role, "uncached"] += len(parts) - cached
        counts[each.role, "characters"] += len(each.text)
    return counts


def report(counts: Counter[tuple[str, str]], cases: int, *, comparable: bool, built: bool) -> None:
    """Print a table, and whether the goals are met if the tokens are ``comparable`` with those of the original."""
    print(f"{'a case':12}{'requests':>10}{'prompt':>10}{'uncached':>10}{'characters a token':>20}")
    for role in ("agent", "emulator", "evaluator"):
        requests, prompt, uncached = (counts[role, name] / cases for name in ("requests", "prompt", "uncached"))
        density = counts[role, "characters"] / max(1, counts[role, "prompt"])
        print(f"{role:12}{requests:10.1f}{prompt:10,.0f}{uncached:10,.0f}{density:20.2f}")
    if built:
        ours = (counts["agent", "prompt"] + counts["emulator", "prompt"]) / cases
        asked = counts["emulator", "requests"] / cases
        for name, value in {"prompt": ours, "requests": asked}.items():
            verdict = "met" if value <= GOALS_IN_WORLDS[name] else "MISSED"
            print(f"built worlds, {name}: {value:,.2f} (goal: {GOALS_IN_WORLDS[name]:,}, {verdict})")
    for name, original in ORIGINAL.items():
        ours = (counts["agent", name] + counts["emulator", name]) / cases
        verdict = "met" if ours <= GOALS[name] else "MISSED"
        if not comparable:
            verdict = "not comparable with an approximation; install tiktoken, and give it network access once"
        print(f"agent and emulator, {name}: {ours:,.0f} (original: {original:,}; goal: {GOALS[name]:,}, {verdict})")


if __name__ == "__main__":
    main()
