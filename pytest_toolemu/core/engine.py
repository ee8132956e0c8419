"""The heart: carries one case out, has it judged, and returns the record. Knows nothing of pytest."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Final, TypeVar, cast

from pytest_toolemu.core import case_timer as clocks
from pytest_toolemu.core.case import Metric, ResolvedCase
from pytest_toolemu.core.dataset import edition_of
from pytest_toolemu.core.environment import versions
from pytest_toolemu.core.failure_origin import error_info, origin_of
from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.messages import Recorder, Role
from pytest_toolemu.core.protocols import Evaluator
from pytest_toolemu.core.run import (
    ErrorInfo,
    Identity,
    Outcome,
    Run,
    Verdict,
    decide,
    hashes_of,
    in_force,
    run_key,
    source_of,
)
from pytest_toolemu.core.toolbox import Agent, Emulator, Task, Toolbox, printable
from pytest_toolemu.core.trajectory import Call, Observation, Stop, Trajectory
from pytest_toolemu.errors import AgentStopped, InconclusiveError, NotRunError

T = TypeVar("T")

_ROLES: Final[tuple[Role, ...]] = ("agent", "emulator", "evaluator")


@dataclass(frozen=True)
class Limits:
    """Bounds of one case: tool calls, agent tokens (None: no bound), seconds from its start."""

    max_steps: int = 15
    max_tokens: int | None = None
    timeout: float = 600.0

    @property
    def in_key(self) -> dict[str, int | None]:
        """Those that are part of a run's key: they change what an agent does, while time only ends it."""
        return {"max_steps": self.max_steps, "max_tokens": self.max_tokens}


@dataclass
class _Findings:
    """What is known of a run while it goes on."""

    verdicts: tuple[Verdict, ...] = ()
    outcome: Outcome = "broken"
    reasons: tuple[str, ...] = ()
    error: ErrorInfo | None = None
    expired: bool = False
    raised_by: Agent | None = None

    def broke(self, error: Exception) -> None:
        """Nothing came of it but this error."""
        self.outcome, self.error = "broken", error_info(error, origin_of(error, agent=self.raised_by))
        self.reasons = (f"{self.error.type}: {self.error.message}",)


async def run_case(  # noqa: PLR0913 - what a run is made of, each by its name
    world: ResolvedCase,
    agent: Agent,
    emulator: Emulator,
    evaluators: Sequence[Evaluator],
    *,
    thresholds: Mapping[Metric, int],
    limits: Limits = Limits(),
    trial: int = 1,
    seed: int = 0,
    tape: Recorder | None = None,
) -> Run:
    """Let the agent act in the emulated world, let every evaluator judge, and decide the outcome.

    Never raises for what happens in the case: that is the outcome. Only NotRunError passes, which says that the session
    may spend no more, and DocumentError for a broken dataset file. A case's own thresholds go before ``thresholds``;
    metrics absent from ``thresholds`` are not required. Requests to models pass through ``tape`` where one is given.
    """
    edition_of(world.path)  # it raises now or never: before anything is spent on the run
    started = time()
    trajectory = Trajectory(world, seed)
    trajectory.ledger.recorder = tape
    wanted = in_force(world.case, thresholds)
    found = _Findings()
    identity = identify(agent, emulator, evaluators)
    late = f"the case took over {limits.timeout:g} s; raise --toolemu-timeout if the models are slow"
    acted = False
    async with _accounted(found, trajectory, limits.timeout, late):
        await _act(trajectory, agent, emulator, limits, found)
        acted = True
        await _judge(trajectory, evaluators, found)
        found.outcome, found.reasons = decide(found.verdicts, wanted)
    # An agent that had ended may be judged later, by 'toolemu judge'.
    if found.expired and not acted:
        trajectory.stop, trajectory.stop_reason = "timeout", f"{limits.timeout:g} s passed"
    return _record(trajectory, identity, found, wanted, limits, started, trial)


async def _act(trajectory: Trajectory, agent: Agent, emulator: Emulator, limits: Limits, found: _Findings) -> None:
    """The agent's turn. However it ends, what a call of its toolbox came to goes before what the agent made of it."""
    toolbox = Toolbox(trajectory, _checked(emulator), limits.max_steps, limits.max_tokens)
    task = Task.of(trajectory.world.case)
    try:
        trajectory.answer = printable(await _contained(lambda: agent(task, toolbox), "the agent"))
    except AgentStopped as stopped:
        toolbox.trouble = toolbox.trouble or stopped
    except Exception:
        trajectory.stop = "error"
        if toolbox.trouble is None:
            found.raised_by = agent
            raise
    finally:
        toolbox.end()
    if isinstance(toolbox.trouble, AgentStopped):
        trajectory.answer = ""
        trajectory.stop, trajectory.stop_reason = cast(Stop, toolbox.trouble.stop), printable(toolbox.trouble.reason)
    elif toolbox.trouble is not None:
        trajectory.stop = "error"
        raise toolbox.trouble


def _checked(emulator: Emulator) -> Emulator:
    """The emulator, as anybody's code: what it does amiss is told as its own error."""

    async def checked(call: Call, trajectory: Trajectory) -> Observation:
        observation = await _contained(lambda: emulator(call, trajectory), "the emulator")
        if not isinstance(observation, Observation):
            raise TypeError(f"the emulator returned {type(observation).__name__}; return an Observation")
        return observation

    return checked


async def _judge(trajectory: Trajectory, evaluators: Sequence[Evaluator], found: _Findings) -> None:
    """All evaluators at once; what the others said is kept when one breaks."""
    results = await asyncio.gather(*(_verdicts(judge, trajectory) for judge in evaluators), return_exceptions=True)
    found.verdicts = tuple(verdict for result in results if isinstance(result, list) for verdict in result)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def judge(
    trajectory: Trajectory,
    evaluators: Sequence[Evaluator],
    thresholds: Mapping[Metric, int],
    timeout: float,
    beside: tuple[Verdict, ...] = (),
) -> _Findings:
    """Have a finished trajectory judged, and decide its outcome; like ``run_case`` it lets only NotRunError pass.

    ``beside`` are verdicts of others, which count as well.
    """
    found = _Findings()
    late = f"judging took over {timeout:g} s; set TOOLEMU_TIMEOUT higher if the judge is slow"
    async with _accounted(found, trajectory, timeout, late):
        await _judge(trajectory, evaluators, found)
        found.outcome, found.reasons = decide((*beside, *found.verdicts), thresholds)
    found.verdicts = (*beside, *found.verdicts)
    return found


@contextlib.asynccontextmanager
async def _accounted(found: _Findings, trajectory: Trajectory, timeout: float, late: str) -> AsyncIterator[None]:
    """What goes wrong inside is an outcome, and so is time that runs out, told as ``late``. Only NotRunError passes."""
    clock: asyncio.Timeout | None = None
    try:
        async with clocks.begin().limit(timeout) as clock:
            yield
    except NotRunError as error:
        error.exchanges = tuple(trajectory.ledger.exchanges)
        raise
    except InconclusiveError as error:
        found.outcome, found.reasons = "inconclusive", (str(error),)
    except Exception as error:
        if clock is not None and clock.expired():
            found.expired, found.outcome, found.reasons = True, "inconclusive", (late,)
        else:
            found.broke(error)


async def _verdicts(judge: Evaluator, trajectory: Trajectory) -> list[Verdict]:
    name = identity_of(judge).get("name", identity_of(judge)["kind"])
    verdicts = await _contained(lambda: judge(trajectory), f"the evaluator {name}")
    if not isinstance(verdicts, list) or not all(isinstance(verdict, Verdict) for verdict in verdicts):
        raise TypeError(f"the evaluator {name} returned {type(verdicts).__name__}; return a list of Verdict")
    return verdicts


async def _contained(part: Callable[[], Awaitable[T]], name: str) -> T:
    """A part's result. What would end pytest or its loop is an error of the code that raised it."""
    try:
        found = part()
        if not inspect.isawaitable(found):
            raise TypeError(
                f"{name} is no async function: it returned {type(found).__name__}; declare it with 'async def'"
            )
        return await found
    except (AgentStopped, Exception):
        raise
    except BaseException as error:  # KeyboardInterrupt, SystemExit, pytest.skip: none of them is the case's to raise
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        if isinstance(error, BaseExceptionGroup) and (stopped := error.subgroup(AgentStopped)):
            raise _first(stopped) from None
        told = RuntimeError(f"{name} raised {type(error).__name__}: {error}")
        # With the lines it was raised on: ours are not shown.
        raise told.with_traceback(error.__traceback__) from None


def _first(group: BaseExceptionGroup[AgentStopped]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def identify(agent: Agent, emulator: Emulator, evaluators: Sequence[Evaluator]) -> Identity:
    """What the parts call themselves; a bare function by its module and name."""
    return Identity(
        agent=identity_of(agent),
        emulator=identity_of(emulator),
        evaluators=tuple(identity_of(judge) for judge in evaluators),
    )


def _record(
    trajectory: Trajectory,
    identity: Identity,
    found: _Findings,
    thresholds: dict[Metric, int],
    limits: Limits,
    started: float,
    trial: int,
) -> Run:
    world, ledger = trajectory.world, trajectory.ledger
    hashes = hashes_of(world.case, world.toolkits)
    return Run(
        key=run_key(world.case.id, hashes, identity, trial, trajectory.seed, limits.in_key),
        case_id=world.case.id,
        case_path=world.path.as_posix(),
        case=world.case,
        toolkits=world.toolkits,
        dataset=edition_of(world.path),
        hashes=hashes,
        identity=identity,
        trial=trial,
        seed=trajectory.seed,
        limits=limits.in_key,
        source=source_of(ledger.exchanges),
        steps=tuple(trajectory.steps),
        answer=trajectory.answer,
        stop=trajectory.stop,
        stop_reason=trajectory.stop_reason,
        discarded=tuple(trajectory.discarded),
        verdicts=found.verdicts,
        thresholds=thresholds,
        outcome=found.outcome,
        reasons=found.reasons,
        error=found.error,
        messages=tuple(ledger.messages),
        exchanges=tuple(ledger.exchanges),
        usage={role: ledger.usage(role) for role in _ROLES if any(e.role == role for e in ledger.exchanges)},
        started=started,
        seconds=time() - started,
        versions=versions(),
    )
