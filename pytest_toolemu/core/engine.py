"""Run one case: let the agent act, let the evaluators judge, and return the record. Independent of pytest."""

from __future__ import annotations

import asyncio
import contextlib
import inspect

# Bound now: an agent may replace these functions in their module.
from asyncio import get_running_loop, timeout
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Final, TypeVar, cast

from pytest_toolemu.core import case_timer
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.dataset import edition_of
from pytest_toolemu.core.environment import versions
from pytest_toolemu.core.failure_origin import error_info, origin_of
from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.messages import Recorder, Role
from pytest_toolemu.core.protocols import Evaluator, UsageMeter
from pytest_toolemu.core.run import ErrorInfo, Run, source_of
from pytest_toolemu.core.run_spec import RunSpec
from pytest_toolemu.core.toolbox import Agent, Emulator, Task, Toolbox, printable
from pytest_toolemu.core.trajectory import Call, Observation, Trajectory, TurnEnding
from pytest_toolemu.core.verdict import Outcome, Verdict, decide
from pytest_toolemu.errors import AgentStopped, InconclusiveError, MissingToolError, NotRunError

T = TypeVar("T")

STOP_GRACE: Final = 1.0
"""Seconds for which an agent that was stopped may go on before it is canceled."""
_ROLES: Final[tuple[Role, ...]] = ("agent", "emulator", "user", "evaluator")


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


async def run_case(spec: RunSpec, cassette: Recorder | None = None, meter: UsageMeter | None = None) -> Run:
    """Let the agent act in the emulated world, let every evaluator judge, and decide the outcome.

    Whatever happens inside the case becomes the outcome of the run and is not raised. Only three exceptions pass:
    NotRunError if the session may spend nothing more, MissingToolError if the agent has tools that are not emulated,
    and DocumentError for a broken dataset file. Model calls pass
    through ``cassette`` if there is one. Tokens that a custom agent reports are counted by ``meter``.
    """
    path = spec.resolved_case.path
    edition_of(path)  # raises for a broken dataset file before anything is spent on the run
    started = time()
    trajectory = Trajectory(spec.resolved_case, spec.seed, turns=spec.limits.turns)
    trajectory.ledger.recorder = cassette
    identity = spec.identity  # read before the agent's code can change it
    conclusion = Conclusion()
    timeout = spec.limits.timeout
    message = f"the case took over {timeout:g} s; raise --toolemu-timeout if the models are slow"
    has_acted = False
    async with _concluding(conclusion, trajectory, timeout, message):
        await _act(trajectory, spec, conclusion, meter)
        has_acted = True
        await _judge(trajectory, spec.evaluators, conclusion)
        conclusion.outcome, conclusion.reasons = decide(conclusion.verdicts, spec.required_scores)
    # If the agent had finished, only judging timed out, and 'toolemu judge' can still judge the run later.
    if conclusion.timed_out and not has_acted:
        trajectory.stop, trajectory.stop_reason = "timeout", f"{timeout:g} s passed"
        if trajectory.interrupted:
            conclusion.reasons = (f"{message}; {trajectory.interrupted}",)
    ledger = trajectory.ledger
    return Run(
        key=spec.key,
        case_id=spec.resolved_case.case.id,
        case_path=path.as_posix(),
        case=spec.resolved_case.case,
        toolkits=spec.resolved_case.toolkits,
        dataset=edition_of(path),
        hashes=spec.hashes,
        identity=identity,
        trial=spec.trial,
        seed=spec.seed,
        limits=spec.limits.in_key,
        source=source_of(ledger.model_calls),
        trap=spec.trap,
        steps=tuple(trajectory.steps),
        dialogue=tuple(trajectory.dialogue),
        answer=trajectory.answer,
        stop=trajectory.stop,
        stop_reason=trajectory.stop_reason,
        discarded=tuple(trajectory.discarded),
        agent_log=printable(trajectory.agent_log),
        verdicts=conclusion.verdicts,
        thresholds=spec.required_scores,
        outcome=conclusion.outcome,
        reasons=conclusion.reasons,
        error=conclusion.error,
        messages=tuple(ledger.messages),
        exchanges=tuple(ledger.model_calls),
        usage={role: ledger.usage(role) for role in _ROLES if any(e.role == role for e in ledger.model_calls)},
        started=started,
        seconds=time() - started,
        versions=versions(),
    )


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
    message = f"judging took over {timeout:g} s; set TOOLEMU_TIMEOUT higher if the judge is slow"
    async with _concluding(conclusion, trajectory, timeout, message):
        await _judge(trajectory, evaluators, conclusion)
        conclusion.outcome, conclusion.reasons = decide((*kept_verdicts, *conclusion.verdicts), thresholds)
    conclusion.verdicts = (*kept_verdicts, *conclusion.verdicts)
    return conclusion


async def _act(trajectory: Trajectory, spec: RunSpec, conclusion: Conclusion, meter: UsageMeter | None) -> None:
    """Run the agent to its end.

    An error in a tool call takes precedence over whatever the agent does with it: an agent that catches the error and
    returns an answer does not hide it.
    """
    limits = spec.limits
    toolbox = Toolbox(trajectory, _checked(spec.emulator), limits.max_steps, limits.max_tokens, meter, spec.user)
    task = Task.of(trajectory.resolved_case.case)
    try:
        async with _canceled_after_stop(toolbox):
            trajectory.answer = printable(await _contained(lambda: spec.agent(task, toolbox), "the agent"))
    except AgentStopped as stopped:
        toolbox.turn_error = toolbox.turn_error or stopped
    except Exception:
        trajectory.stop = "error"
        if toolbox.turn_error is None:
            conclusion.raised_by = spec.agent
            raise
    finally:
        toolbox.end()
        toolbox.keep_last_words(trajectory.answer)
    if isinstance(toolbox.turn_error, AgentStopped):
        trajectory.answer = ""
        trajectory.stop, trajectory.stop_reason = (
            cast(TurnEnding, toolbox.turn_error.stop),
            printable(toolbox.turn_error.reason),
        )
    elif toolbox.turn_error is not None:
        trajectory.stop = "error"
        raise toolbox.turn_error


@contextlib.asynccontextmanager
async def _canceled_after_stop(toolbox: Toolbox) -> AsyncIterator[None]:
    """Cancel the block if it goes on ``STOP_GRACE`` seconds after the agent was stopped.

    Some frameworks catch even a BaseException of a tool and report it to their model, which would then go on, at the
    user's expense, until the case times out.
    """
    loop, turn = get_running_loop(), timeout(None)

    async def limit_turn() -> None:
        await toolbox.stopped.wait()
        turn.reschedule(loop.time() + STOP_GRACE)

    async with turn:
        toolbox.settle()  # now, because the agent may make its first call from elsewhere
        waiting = loop.create_task(limit_turn())
        try:
            yield
        finally:
            waiting.cancel()


def _checked(emulator: Emulator) -> Emulator:
    """Wrap the emulator so that its exceptions are attributed to it."""

    async def checked(call: Call, trajectory: Trajectory) -> Observation:
        observation = await _contained(lambda: emulator(call, trajectory), "the emulator")
        if not isinstance(observation, Observation):
            raise TypeError(f"the emulator returned {type(observation).__name__}; return an Observation")
        return observation

    return checked


async def _judge(trajectory: Trajectory, evaluators: Sequence[Evaluator], conclusion: Conclusion) -> None:
    """Run all evaluators at once; if one raises, the verdicts of the others are kept."""
    results = await asyncio.gather(*(_verdicts(each, trajectory) for each in evaluators), return_exceptions=True)
    conclusion.verdicts = tuple(verdict for result in results if isinstance(result, list) for verdict in result)
    for result in results:
        if isinstance(result, BaseException):
            raise result


@contextlib.asynccontextmanager
async def _concluding(
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


async def _verdicts(evaluator: Evaluator, trajectory: Trajectory) -> list[Verdict]:
    name = identity_of(evaluator).get("name", identity_of(evaluator)["kind"])
    verdicts = await _contained(lambda: evaluator(trajectory), f"the evaluator {name}")
    if not isinstance(verdicts, list) or not all(isinstance(verdict, Verdict) for verdict in verdicts):
        raise TypeError(f"the evaluator {name} returned {type(verdicts).__name__}; return a list of Verdict")
    return verdicts


async def _contained(component: Callable[[], Awaitable[T]], name: str) -> T:
    """Return a component's result; turn exceptions that would end pytest or its loop into errors of that component."""
    try:
        result = component()
        if not inspect.isawaitable(result):
            raise TypeError(
                f"{name} is no async function: it returned {type(result).__name__}; declare it with 'async def'"
            )
        return await result
    except (AgentStopped, Exception):
        raise
    except BaseException as error:  # KeyboardInterrupt, SystemExit, pytest.skip: a component must not raise these
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # the scheduler cancels this case
        if isinstance(error, BaseExceptionGroup) and (stopped := error.subgroup(AgentStopped)):
            raise _first(stopped) from None
        replacement = RuntimeError(f"{name} raised {type(error).__name__}: {error}")
        # Keep the traceback: the lines of the component's code are shown, those of this package are not.
        raise replacement.with_traceback(error.__traceback__) from None


def _first(group: BaseExceptionGroup[AgentStopped]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
