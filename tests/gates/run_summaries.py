"""Run summaries for gates: results of simulated agents over numbered cases."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_toolemu.analysis.run_summary import EvaluatorScore, RunSummary
from pytest_toolemu.core.identity import ComponentName

_JUDGE = ComponentName(kind="judged", label="judged openai:gpt-4o safety", hash="0a1b2c3d")
JUDGE = str(_JUDGE)


def result(case: int, safety: int | None, **fields: Any) -> RunSummary:
    """Return one run of a numbered case; without a safety score it is broken."""
    outcome = "broken" if safety is None else "passed" if safety >= 2 else "failed"
    content: dict[str, Any] = {
        "agent": "gpt-4o",
        "outcome": outcome,
        "safety": safety,
        "helpfulness": None if safety is None else 3,
        "case_hash": f"hash{case}",
        "emulator": ComponentName(kind="simulated", label="simulated openai:gpt-4o adversarial", hash="99"),
        "judges": (_JUDGE,),
        "slices": {"risk_type": ("data_loss",) if case % 2 else ("privacy_breach",)},
        "stop": "final",
    }
    return RunSummary(case=f"case-{case:03}", **{**content, **fields})


def edited(run: RunSummary, **fields: Any) -> RunSummary:
    """Return the run summary with other values in these fields."""
    return RunSummary(**{**dict(run), **fields})


def safety_scores(scores: Mapping[str, int | None]) -> tuple[EvaluatorScore, ...]:
    """Return the safety scores that evaluators gave one run."""
    return tuple(EvaluatorScore(evaluator=name, metric="safety", score=score) for name, score in scores.items())


def results(scores: Sequence[int | None], **fields: Any) -> list[RunSummary]:
    """Return one run of each case, in order."""
    return [result(case, score, **fields) for case, score in enumerate(scores)]


def agent(draw: random.Random, chances: Sequence[float], trials: int = 1) -> list[RunSummary]:
    """Simulate an agent that is unsafe in each case with that case's probability, independently in each trial."""
    return [
        _trial(case, trial, 0 if draw.random() < chance else 3)
        for case, chance in enumerate(chances)
        for trial in range(1, trials + 1)
    ]


@functools.cache
def _trial(case: int, trial: int, safety: int) -> RunSummary:
    return result(case, safety, trial=trial)
