"""How a run ends: its verdicts and outcome, whatever was raised on the way to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_toolemu.core import case_timer
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.component_calls import verdicts_of
from pytest_toolemu.core.identity import identity_of, verdict_names
from pytest_toolemu.core.protocols import Evaluator
from pytest_toolemu.core.run import ErrorInfo
from pytest_toolemu.core.run_parts.failure_origin import error_info, origin_of
from pytest_toolemu.core.toolbox import Agent
from pytest_toolemu.core.trajectory import Trajectory
from pytest_toolemu.core.verdict import Outcome, Verdict, decide
from pytest_toolemu.errors import InconclusiveError, MissingToolError, NotRunError


@dataclass
class Conclusion:
    """What is known about a run's result so far; "broken" until the evaluators have judged."""

    verdicts: tuple[Verdict, ...] = ()
    outcome: Outcome = "broken"
    reasons: tuple[str, ...] = ()
    error: ErrorInfo | None = None
    timed_out: bool = False
    raised_by: Agent | None = None
    """The agent, if the exception in progress comes from its own code."""

    def set_error(self, error: Exception) -> None:
        """Make the run broken by this exception, and record whose exception it is."""
        self.outcome, self.error = "broken", error_info(error, origin_of(error, agent=self.raised_by))
        self.reasons = (f"{self.error.type}: {self.error.message}",)

    def decide(self, thresholds: Mapping[Metric, int], problems: Sequence[str]) -> None:
        """Decide by the verdicts; with problems of evaluators that did not answer, only a failing score stands."""
        self.outcome, self.reasons = decide(self.verdicts, thresholds)
        if problems and self.outcome != "failed":
            self.outcome, self.reasons = "inconclusive", tuple(dict.fromkeys(problems))


async def judge(
    trajectory: Trajectory,
    evaluators: Sequence[Evaluator],
    thresholds: Mapping[Metric, int],
    timeout: float,
    kept_verdicts: tuple[Verdict, ...] = (),
) -> Conclusion:
    """Judge a finished trajectory within ``timeout`` seconds, and decide its outcome; raise NotRunError only.

    ``kept_verdicts``, of earlier evaluators, count as well.
    """
    conclusion = Conclusion()
    message = f"judging took more than {timeout:g} s; raise TOOLEMU_TIMEOUT if the judge is slow"
    async with concluding(conclusion, trajectory, timeout, message):
        await judge_all(trajectory, evaluators, thresholds, conclusion, kept_verdicts)
    if conclusion.timed_out:
        missing = [verdict for each in evaluators for verdict in missing_verdicts(identity_of(each), message)]
        conclusion.verdicts = (*kept_verdicts, *missing)
        conclusion.decide(thresholds, [message])
    return conclusion


async def judge_all(
    trajectory: Trajectory,
    evaluators: Sequence[Evaluator],
    thresholds: Mapping[Metric, int],
    conclusion: Conclusion,
    kept_verdicts: tuple[Verdict, ...] = (),
) -> None:
    """Run all evaluators at once, and decide; if one raises, the verdicts of the others are kept.

    An evaluator that cannot judge gets verdicts without a score: it could have given a worse score than the others.
    """
    results = await asyncio.gather(*(verdicts_of(each, trajectory) for each in evaluators), return_exceptions=True)
    verdicts, problems = list(kept_verdicts), []
    for evaluator, result in zip(evaluators, results, strict=True):
        if isinstance(result, list):
            verdicts += result
        elif isinstance(result, InconclusiveError):
            problems.append(str(result))
            verdicts += missing_verdicts(identity_of(evaluator), str(result))
    conclusion.verdicts = tuple(verdicts)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, InconclusiveError):
            raise result
    conclusion.decide(thresholds, problems)


def missing_verdicts(evaluator: Mapping[str, Any], problem: str) -> list[Verdict]:
    """Return the verdicts, all without a score, of the evaluator with this identity, which has not answered."""
    return [Verdict(evaluator=name, metric=metric, problem=problem) for name, metric in verdict_names(evaluator)]


@contextlib.asynccontextmanager
async def concluding(
    conclusion: Conclusion, trajectory: Trajectory, timeout: float, timeout_message: str
) -> AsyncIterator[None]:
    """Turn exceptions and the timeout into the conclusion of the run; see ``run_case`` for those that pass."""
    timer: asyncio.Timeout | None = None
    try:
        async with case_timer.begin().limit(timeout) as timer:
            yield
    except (NotRunError, MissingToolError) as error:
        error.model_calls = tuple(trajectory.ledger.model_calls)  # these calls were paid for
        raise
    except InconclusiveError as error:
        conclusion.outcome, conclusion.reasons = "inconclusive", (str(error),)
    except Exception as error:
        if timer is not None and timer.expired():
            conclusion.timed_out = True
            conclusion.outcome, conclusion.reasons = "inconclusive", (timeout_message,)
        else:
            conclusion.set_error(error)
