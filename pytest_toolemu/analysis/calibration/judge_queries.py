"""Asks judges about labeled runs: references of cases, played offline, and runs that people labeled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pytest_toolemu.agents.reference import ReferenceAgent
from pytest_toolemu.analysis.calibration.labeled_runs import REFERENCE, Label, LabeledRun
from pytest_toolemu.analysis.calibration.second_opinions import SecondOpinions
from pytest_toolemu.analysis.rejudge import FINISHED, rejudge
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.engine import run_case
from pytest_toolemu.core.identity import component_name, identity_of
from pytest_toolemu.core.messages import FallbackReason
from pytest_toolemu.core.protocols import Evaluator
from pytest_toolemu.core.run import Run
from pytest_toolemu.core.run_notes import RunNote, notes_of
from pytest_toolemu.core.run_parts.cascade_record import CascadeRecord
from pytest_toolemu.core.run_spec import Limits, RunSpec
from pytest_toolemu.core.verdict import PASSING
from pytest_toolemu.emulators.consistent import ConsistentEmulator
from pytest_toolemu.emulators.offline.emulator import OfflineEmulator
from pytest_toolemu.emulators.pinned import PinnedEmulator
from pytest_toolemu.emulators.rows import RowsEmulator
from pytest_toolemu.emulators.validated import ValidatedEmulator
from pytest_toolemu.errors import UsageError
from pytest_toolemu.evaluators.cascade import CascadeEvaluator
from pytest_toolemu.models.pricing import Cost, Prices, costs_of

StoreRun = Callable[[Run, str], Path]
"""Stores a judged run under a name, and returns the path of its record."""

_MAX_PROBLEM: Final = 120


@dataclass(frozen=True)
class Opinion:
    """The answer of one judge about one labeled run; ``score`` is None if there is a ``problem``.

    ``repeat`` counts from 1 how often the judge was asked about this run.
    """

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
    cost: Cost = field(default_factory=Cost)
    notes: tuple[RunNote, ...] = ()
    fallback_reasons: tuple[FallbackReason, ...] = ()
    cascade: CascadeRecord | None = None
    """What each stage said, if the judge is a cascade."""


async def play_references(resolved_case: ResolvedCase, opinions: SecondOpinions) -> list[LabeledRun]:
    """Play the references of a case deterministically, and return them as labeled runs with their second opinions.

    UsageError for a reference that cannot be played.
    """
    labeled = []
    for name, reference in resolved_case.case.references.items():
        emulator = ValidatedEmulator(PinnedEmulator(RowsEmulator(ConsistentEmulator(OfflineEmulator()))))
        limits = Limits(max_steps=max(1, len(reference.calls)))
        run = await run_case(RunSpec(resolved_case, ReferenceAgent(name), emulator, limits=limits))
        if run.stop not in FINISHED:
            problem = f"the reference {name!r} cannot be played: {'; '.join(run.reasons)}"
            raise UsageError(f"{resolved_case.path}: {problem}; correct it, or name other cases with --cases")
        scores = reference.scores
        label = Label(run=name, annotator=REFERENCE, safety=scores.safety, helpfulness=scores.helpfulness)
        run = run.model_copy(update={"agent": f"reference:{name}"})
        others = opinions.of(resolved_case.case, name)
        labeled.append(LabeledRun(f"{resolved_case.case.id} {name}", run, (label,), second_opinions=others))
    return labeled


@dataclass(frozen=True)
class JudgeQuery:
    """One request to one evaluator about one labeled run; the seed is that of the run, plus one for each repeat."""

    subject: LabeledRun
    metric: Metric
    evaluator: Evaluator
    repeat: int

    @property
    def judge(self) -> str:
        """Name of the evaluator."""
        return str(component_name(identity_of(self.evaluator)))

    @property
    def name(self) -> str:
        """Name of the query, which no other query of a calibration has."""
        return f"{self.subject.name} {self.judge} {self.repeat}"


def judge_queries(
    subjects: Iterable[LabeledRun], judges: Sequence[tuple[Metric, Evaluator]], repeats: int
) -> list[JudgeQuery]:
    """Return a query to every judge of a metric about every labeled run with a label of that metric.

    Cascades ask all stages, because the strong judge is compared with the whole.
    """
    return [
        JudgeQuery(
            subject, metric, evaluator.asking_all() if isinstance(evaluator, CascadeEvaluator) else evaluator, repeat
        )
        for subject in subjects
        for metric, evaluator in judges
        if subject.score(metric) is not None
        for repeat in range(1, repeats + 1)
    ]


async def ask_judge(question: JudgeQuery, *, timeout: float, store_run: StoreRun, prices: Prices) -> Opinion:
    """Ask the judge, store the judged run as a record, and return the answer."""
    subject, metric, judge = question.subject, question.metric, question.judge
    label = subject.score(metric)
    assert label is not None
    repeated_run = subject.run.model_copy(
        update={"trial": question.repeat, "seed": subject.run.seed + question.repeat - 1, "thresholds": {}}
    )
    run = await rejudge(
        repeated_run, (question.evaluator,), thresholds={metric: PASSING}, timeout=timeout, source=subject.name
    )
    path = store_run(run, question.name)
    verdict = run.verdicts[0] if run.verdicts else None
    has_score = verdict is not None and verdict.score is not None
    return Opinion(
        judge=judge,
        metric=metric,
        subject=subject.name,
        case=run.case_id,
        repeat=question.repeat,
        label=label,
        score=verdict.score if verdict else None,
        problem="" if has_score else _problem_kind(verdict.problem if verdict else "; ".join(run.reasons)),
        reason=verdict.reason if verdict else "",
        path=str(path),
        cost=sum(costs_of(run.model_calls, prices).values(), Cost()),
        notes=notes_of(run.model_calls),
        fallback_reasons=tuple(call.instead_of.reason for call in run.model_calls if call.instead_of),
        cascade=verdict.cascade if verdict else None,
    )


def _problem_kind(problem: str) -> str:
    """Return why a judge gave no score, without details of the run, so that equal problems are counted together."""
    return "refused" if problem.startswith("refused:") else " ".join(problem.split())[:_MAX_PROBLEM]
