"""What judges say of labelled runs: references of cases, played in the offline world, and what people labelled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.agents.reference import ReferenceAgent
from pytest_toolemu.analysis.calibration.labeled_runs import REFERENCE, Label, LabeledRun
from pytest_toolemu.analysis.rejudge import FINISHED, rejudge
from pytest_toolemu.analysis.run_row import PASSING
from pytest_toolemu.core.case import Metric, ResolvedCase
from pytest_toolemu.core.engine import run_case
from pytest_toolemu.core.identity import component_name, identity_of
from pytest_toolemu.core.protocols import Evaluator
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_spec import Limits, RunSpec
from pytest_toolemu.core.structured_output_fallbacks import Fallback, fallbacks_of
from pytest_toolemu.emulators.consistent import ConsistentEmulator
from pytest_toolemu.emulators.offline.emulator import OfflineEmulator
from pytest_toolemu.emulators.pinned import PinnedEmulator
from pytest_toolemu.emulators.validated import ValidatedEmulator
from pytest_toolemu.errors import UsageError

StoreRun = Callable[[Run, str], Path]
"""Stores a run that was judged for an item, and says where."""

_SHORT: Final = 120


@dataclass(frozen=True)
class Opinion:
    """What one judge said of one labelled run, asked for the ``repeat``-th time; ``score`` is None with a problem."""

    judge: str
    metric: Metric
    subject: str
    case: str
    repeat: int
    label: int
    score: int | None
    problem: str = ""
    reason: str = ""
    path: str = ""
    tokens: int = 0
    fallbacks: tuple[Fallback, ...] = ()


async def play_references(resolved_case: ResolvedCase) -> list[LabeledRun]:
    """The references of a case as finished runs, the same every time; UsageError for one that cannot be played."""
    found = []
    for name, reference in resolved_case.case.references.items():
        emulator: Any = ValidatedEmulator(PinnedEmulator(ConsistentEmulator(OfflineEmulator())))
        limits = Limits(max_steps=max(1, len(reference.calls)))
        run = await run_case(RunSpec(resolved_case, ReferenceAgent(name), emulator, limits=limits))
        if run.stop not in FINISHED:
            why = "; ".join(run.reasons)
            raise UsageError(
                f"{resolved_case.path}: the reference {name!r} cannot be played: {why}; mend it, or name other --cases"
            )
        scores = reference.scores
        label = Label(run=name, annotator=REFERENCE, safety=scores.safety, helpfulness=scores.helpfulness)
        run = run.model_copy(update={"agent": f"reference:{name}"})
        found.append(LabeledRun(f"{resolved_case.case.id} {name}", run, (label,)))
    return found


@dataclass(frozen=True)
class JudgeQuery:
    """One run to be judged by one evaluator once; its seed is the run's own, one up for each repeat."""

    subject: LabeledRun
    metric: Metric
    evaluator: Evaluator
    repeat: int


def judge_queries(
    subjects: Iterable[LabeledRun], judges: Sequence[tuple[Metric, Evaluator]], repeats: int
) -> list[JudgeQuery]:
    """Every judge of a metric about every subject that has a label of it."""
    return [
        JudgeQuery(subject, metric, evaluator, repeat)
        for subject in subjects
        for metric, evaluator in judges
        if subject.score(metric) is not None
        for repeat in range(1, repeats + 1)
    ]


async def ask_judge(question: JudgeQuery, timeout: float, put: StoreRun) -> Opinion:
    """The judge's answer, on the record like any run."""
    subject, metric, judge = question.subject, question.metric, str(component_name(identity_of(question.evaluator)))
    label = subject.score(metric)
    assert label is not None
    again = subject.run.model_copy(
        update={"trial": question.repeat, "seed": subject.run.seed + question.repeat - 1, "thresholds": {}}
    )
    run = await rejudge(
        again, (question.evaluator,), thresholds={metric: PASSING}, timeout=timeout, source=subject.name
    )
    path = put(run, f"{subject.name} {judge} {question.repeat}")
    verdict = run.verdicts[0] if run.verdicts else None
    heard = verdict is not None and verdict.score is not None
    return Opinion(
        judge=judge,
        metric=metric,
        subject=subject.name,
        case=run.case_id,
        repeat=question.repeat,
        label=label,
        score=verdict.score if verdict else None,
        problem="" if heard else _kind(verdict.problem if verdict else "; ".join(run.reasons)),
        reason=verdict.reason if verdict else "",
        path=str(path),
        tokens=sum(usage.total for usage in run.usage.values()),
        fallbacks=fallbacks_of(run.exchanges),
    )


def _kind(problem: str) -> str:
    """What kept a judge from answering, without the words of the single case, so that equal troubles count together."""
    return "refused" if problem.startswith("refused:") else " ".join(problem.split())[:_SHORT]
