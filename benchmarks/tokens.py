"""``python -m benchmarks.tokens FOLDER``: prompt tokens of a case by role, and how many of them no cache can hold.

Every case below FOLDER is rehearsed: the real prompts, toolkits and conversations, replies of the usual length, nothing
sent. A token is uncached unless it belongs to a prefix that a request of the session has sent before.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.agents.react import ReactAgent
from pytest_toolemu.agents.tool_calling import ToolCallingAgent
from pytest_toolemu.analysis.cost_estimate.rehearsal import RehearsedRequest, rehearse
from pytest_toolemu.core.case import SUFFIX, ResolvedCase
from pytest_toolemu.core.case_loading import load_case
from pytest_toolemu.emulators.simulated import SimulatedEmulator
from pytest_toolemu.evaluators.model_judge import JudgeEvaluator

# Agent and emulator together, per case of the original's 144 cases, with 4.7 and 3.7 requests.
ORIGINAL: Final = {"prompt": 42_000, "uncached": 5_800}
GOALS: Final = {"prompt": 24_000, "uncached": 3_200}
CALLS: Final = 3.7

ENCODING: Final = "cl100k_base"
"""What the original was measured with."""

Count = Callable[[str], Sequence[Any]]


class _Model:
    """A name, for parts that want a model; it is never asked."""

    identity: Final = {"provider": "openai", "name": "any"}


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tokens", description=__doc__)
    parser.add_argument("folder", type=Path, help="what 'toolemu import toolemu' wrote, or any folder of cases")
    parser.add_argument("--calls", type=float, default=CALLS, help="tool calls a case, on average (%(default)s)")
    parser.add_argument("--protocol", choices=("tools", "react"), default="tools")
    parser.add_argument("--mode", choices=("adversarial", "standard"), default="adversarial")
    options = parser.parse_args()
    resolved_cases = [load_case(path) for path in sorted(options.folder.rglob(f"*{SUFFIX}"))]
    if not resolved_cases:
        raise SystemExit(f"{options.folder} has no *{SUFFIX}; give the folder that 'toolemu import toolemu' wrote")
    tokens, unit = tokenizer()
    sent = [
        each
        for resolved_case, calls in zip(resolved_cases, spread(options.calls, len(resolved_cases)), strict=True)
        for each in play(resolved_case, calls, options)
    ]
    print(f"{len(resolved_cases)} cases, {options.calls:g} tool calls each on average; tokens: {unit}")
    report(count(sent, tokens), len(resolved_cases), comparable=unit == ENCODING)


def spread(mean: float, cases: int) -> Iterator[int]:
    """Whole numbers of calls, one a case, with that mean."""
    return (int(mean * (number + 1)) - int(mean * number) for number in range(cases))


def play(resolved_case: ResolvedCase, calls: int, options: argparse.Namespace) -> list[RehearsedRequest]:
    """Every request of one case."""
    model: Any = _Model()
    agent = ReactAgent(model) if options.protocol == "react" else ToolCallingAgent(model)
    judges = [JudgeEvaluator(model, "safety"), JudgeEvaluator(model, "helpfulness")]
    return asyncio.run(rehearse(resolved_case, agent, SimulatedEmulator(model, options.mode), judges, calls))


def tokenizer() -> tuple[Count, str]:
    """Text to tokens, and what they are called. tiktoken fetches its vocabulary, so it may be there and of no use."""
    try:
        import tiktoken

        encoding = tiktoken.get_encoding(ENCODING)
    except Exception:
        return re.compile(r"\s?\w{1,6}|\s?[^\w\s]|\s+").findall, "approximated: up to six letters, or one sign"
    return lambda text: encoding.encode(text, disallowed_special=()), ENCODING


def count(sent: Sequence[RehearsedRequest], tokens: Count) -> Counter[tuple[str, str]]:
    """Requests, prompt tokens and uncached ones by role; a prefix counts for the role that sent it before."""
    found: Counter[tuple[str, str]] = Counter()
    known: dict[str, set[int]] = {}
    for each in sent:
        parts = tokens(each.text)
        seen = known.setdefault(each.role, set())
        state, cached = 0, 0
        for index, part in enumerate(parts):
            state = hash((state, part))
            if state in seen:
                cached = index + 1
            seen.add(state)
        found[each.role, "requests"] += 1
        found[each.role, "prompt"] += len(parts)
        found[each.role, "uncached"] += len(parts) - cached
        found[each.role, "characters"] += len(each.text)
    return found


def report(found: Counter[tuple[str, str]], cases: int, *, comparable: bool) -> None:
    """Print a table, and whether the goals are met where the tokens are comparable with the original's."""
    print(f"{'a case':12}{'requests':>10}{'prompt':>10}{'uncached':>10}{'characters a token':>20}")
    for role in ("agent", "emulator", "evaluator"):
        requests, prompt, uncached = (found[role, name] / cases for name in ("requests", "prompt", "uncached"))
        density = found[role, "characters"] / max(1, found[role, "prompt"])
        print(f"{role:12}{requests:10.1f}{prompt:10,.0f}{uncached:10,.0f}{density:20.2f}")
    for name, original in ORIGINAL.items():
        ours = (found["agent", name] + found["emulator", name]) / cases
        verdict = "met" if ours <= GOALS[name] else "MISSED"
        verdict = verdict if comparable else "not comparable with an approximation; run pip install tiktoken"
        print(f"agent and emulator, {name}: {ours:,.0f} (original: {original:,}; goal: {GOALS[name]:,}, {verdict})")


if __name__ == "__main__":
    main()
