"""Run one case: let the agent act, let the evaluators judge, and return the record. Independent of pytest."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter, time
from typing import Final

from pytest_toolemu.core import case_timer
from pytest_toolemu.core.case import ResolvedCase, edition_of
from pytest_toolemu.core.case_rules import Trap
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.conclusion import Conclusion, checked_emulator, checked_user, concluding, contained, judge_all
from pytest_toolemu.core.identity import identity_of, refuse_unknown_judge, runs_own_code
from pytest_toolemu.core.messages import Recorder, Role
from pytest_toolemu.core.run import (
    UNJUDGED,
    Evaluator,
    Identity,
    Run,
    Trajectory,
    hashes_of,
    in_force,
    run_key,
    sha256,
    source_of,
    versions,
)
from pytest_toolemu.core.run_notes import NO_CALLS
from pytest_toolemu.core.toolbox import ACTING, Agent, Emulator, SimulatedUser, Task, Toolbox, UsageMeter, printable
from pytest_toolemu.errors import AgentStopped

_JUDGED_LATER: Final = "not judged yet; 'toolemu judge' asks the judges"
_ROLES: Final[tuple[Role, ...]] = ("agent", "emulator", "user", "evaluator")


async def run_case(
    spec: RunSpec,
    cassette: Recorder | None = None,
    meter: UsageMeter | None = None,
    trajectory: Trajectory | None = None,
) -> Run:
    """Let the agent act in the emulated world, let every evaluator judge unless judging is postponed, and decide.

    What happens inside the case becomes the outcome of the run and is not raised. Only three exceptions are raised:
    NotRunError if the session may spend nothing more, MissingToolError if the agent has tools that are not emulated,
    and DocumentError for a broken dataset file. Model calls pass through ``cassette`` if there is one. Tokens that a
    custom agent reports are counted by ``meter``. ``trajectory`` is that of the spec, which any thread may
    read while the case runs.
    """
    ACTING.set(None)  # until the agent acts
    edition_of(spec.resolved_case.path)  # raises for a broken dataset file before anything is spent on the run
    started, begun = time(), perf_counter()
    trajectory = trajectory or spec.new_trajectory()
    trajectory.ledger.recorder = cassette
    identity = spec.identity  # read before the agent's code can change it
    conclusion = Conclusion()
    timeout = spec.limits.timeout
    message = f"the case took more than {timeout:g} s; raise --toolemu-timeout if the models are slow"
    has_acted = False
    async with concluding(conclusion, trajectory, timeout, message):
        await _act(trajectory, spec, conclusion, meter)
        has_acted = trajectory.has_ended = True
        if spec.judge_later:
            conclusion.outcome, conclusion.reasons = UNJUDGED, (_JUDGED_LATER,)
        else:
            await judge_all(trajectory, spec.evaluators, spec.required_scores, conclusion, rule=spec.combine)
    # If the agent had finished, only judging timed out, and 'toolemu judge' can still judge the run later.
    if conclusion.timed_out and not has_acted:
        trajectory.stop, trajectory.stop_reason = "timeout", f"{timeout:g} s passed"
        if trajectory.interrupted:
            conclusion.reasons = (f"{message}; {trajectory.interrupted}",)
    record = _record(spec, identity, trajectory, conclusion)
    return record.model_copy(update={"started": started, "seconds": perf_counter() - begun})


def _record(spec: RunSpec, identity: Identity, trajectory: Trajectory, conclusion: Conclusion) -> Run:
    path, ledger = spec.resolved_case.path, trajectory.ledger
    is_unseen = trajectory.stop == "final" and not trajectory.steps and runs_own_code(identity.agent)
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
        traceparent=trajectory.traceparent,
        agent_warning=trajectory.agent_warning or (f"the agent {NO_CALLS}" if is_unseen else ""),
        verdicts=conclusion.verdicts,
        thresholds=spec.required_scores,
        combine=spec.combine,
        outcome=conclusion.outcome,
        reasons=conclusion.reasons,
        error=conclusion.error,
        messages=tuple(ledger.messages),
        model_calls=tuple(ledger.model_calls),
        usage={role: ledger.usage(role) for role in _ROLES if any(e.role == role for e in ledger.model_calls)},
        versions=versions(),
    )


async def _act(trajectory: Trajectory, spec: RunSpec, conclusion: Conclusion, meter: UsageMeter | None) -> None:
    """Run the agent to its end.

    An error in a tool call takes precedence over whatever the agent does with it: an agent that catches the error and
    returns an answer does not hide it.
    """
    limits = spec.limits
    user = checked_user(spec.user) if spec.user is not None else None
    toolbox = Toolbox(trajectory, checked_emulator(spec.emulator), limits.max_steps, limits.max_tokens, meter, user)
    task = Task.of(trajectory.resolved_case.case)
    try:
        trajectory.answer = printable(await answer_of(spec.agent, task, toolbox))
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
        trajectory.stop, trajectory.stop_reason = toolbox.turn_error.stop, printable(toolbox.turn_error.reason)
    elif toolbox.turn_error is not None:
        trajectory.stop = "error"
        raise toolbox.turn_error


@dataclass(frozen=True)
class Limits:
    """Bounds of one run: tool calls, tokens that the agent uses (None: unbounded), and seconds from its start.

    ``turns`` is the number of messages that the agent may write to the user, counting its answer.
    """

    max_steps: int = 15
    max_tokens: int | None = None
    timeout: float = 600.0
    turns: int = 1

    @property
    def in_key(self) -> dict[str, int | None]:
        """The limits that are part of a run's key: they change what an agent does, while the timeout only ends it."""
        limits = {"max_steps": self.max_steps, "max_tokens": self.max_tokens}
        return limits | {"turns": self.turns} if self.turns > 1 else limits


@dataclass(frozen=True)
class RunSpec:
    """A case with the components that run it, the scores it needs, its limits, trial number, and seed.

    ``thresholds`` are the lowest scores, from 0 to 3, that pass; a metric without one is not required. ``trial`` counts
    from 1. With ``judge_later``, the run gets no verdict, and its outcome is "unjudged". ``trap`` is only stored in the
    record. It is not part of ``resolved_case``, so that neither agent nor evaluators see it. ``combine`` is the rule
    that makes one score of those of several judges.
    """

    resolved_case: ResolvedCase
    agent: Agent
    emulator: Emulator
    evaluators: tuple[Evaluator, ...] = ()
    thresholds: Mapping[Metric, int] = field(default_factory=dict)
    limits: Limits = Limits()
    trial: int = 1
    seed: int = 0
    trap: Trap | None = None
    user: SimulatedUser | None = None
    judge_later: bool = False
    combine: str = "worst"

    def __post_init__(self) -> None:
        """Raise UsageError if ``combine`` names none of the judges."""
        refuse_unknown_judge(self.combine, map(identity_of, self.evaluators))

    def new_trajectory(self) -> Trajectory:
        """Return a trajectory in which nothing has happened yet."""
        return Trajectory(self.resolved_case, self.seed, turns=self.limits.turns)

    def in_conversation(self, user: SimulatedUser, turns: int) -> RunSpec:
        """Return the run with a user who replies; this one if the case has no conversation, or with only one turn."""
        if turns <= 1 or self.resolved_case.case.conversation is None:
            return self
        resolved_case = replace(self.resolved_case, case=self.resolved_case.case.in_conversation)
        return replace(self, resolved_case=resolved_case, limits=replace(self.limits, turns=turns), user=user)

    @cached_property
    def identity(self) -> Identity:
        """The identities of all components; that of a plain function is its module and name."""
        in_dialogue = self.user is not None
        return Identity(
            agent=identity_of(self.agent),
            emulator=identity_of(self.emulator, in_dialogue=in_dialogue),
            evaluators=tuple(identity_of(evaluator, in_dialogue=in_dialogue) for evaluator in self.evaluators),
            user=identity_of(self.user) if self.user is not None else None,
        )

    @cached_property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of the case, of each of its toolkits, and of its conversation if there is a user."""
        case = self.resolved_case.case
        hashes = hashes_of(case, self.resolved_case.toolkits)
        if self.user is None or case.conversation is None:
            return hashes
        # Whether asking is needless decides on the score in conversations only, so the case's own hash leaves it out.
        return hashes | {"conversation": sha256([case.conversation.model_dump(mode="json"), case.asking])}

    @cached_property
    def key(self) -> str:
        """The key of the run, known before the run is made: it covers everything that can change the result."""
        case_id = self.resolved_case.case.id
        return run_key(case_id, self.hashes, self.identity, self.trial, self.seed, self.limits.in_key)

    @property
    def required_scores(self) -> dict[Metric, int]:
        """The thresholds that apply: a case's own take precedence over ``thresholds``."""
        return in_force(self.resolved_case.case, self.thresholds)


STOP_GRACE: Final = 1.0
"""Seconds for which an agent that was stopped may go on before it is canceled."""
CANCEL_GRACE: Final = 5.0
"""Seconds that an agent may take to end after it was canceled. Then its case ends without it."""


async def answer_of(agent: Agent, task: Task, toolbox: Toolbox) -> str:
    """Return the agent's answer, or raise its exception.

    Some frameworks catch even a BaseException of a tool and report it to their model, which would then go on, at the
    user's expense. So an agent that goes on ``STOP_GRACE`` seconds after it was stopped is canceled. If it ignores
    that, too, it is left behind, and the answer is empty. It is also canceled if the case is.
    """
    loop = asyncio.get_running_loop()
    toolbox.settle()  # now, because the agent may make its first call from elsewhere
    turn = loop.create_task(_whole_turn(agent, task, toolbox), name="toolemu-agent")
    stopped = loop.create_task(toolbox.stopped.wait())
    try:
        await asyncio.wait([turn, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not turn.done():
            await asyncio.wait([turn], timeout=STOP_GRACE)
    finally:
        stopped.cancel()
        is_canceled = not turn.done()
        if is_canceled or toolbox.running_calls:
            await _end(turn, toolbox)
    return "" if is_canceled else _result(turn)


async def _whole_turn(agent: Agent, task: Task, toolbox: Toolbox) -> str:
    try:
        answer = await contained(lambda: agent(task, toolbox), "the agent")
        await toolbox.finish()
        return answer
    except AgentStopped:  # also by a limit of the agent's framework; the run is judged
        await toolbox.finish()
        raise
    finally:
        toolbox.end()  # now: later calls must not be answered while its case goes on


async def _end(turn: asyncio.Task[str], toolbox: Toolbox) -> None:
    """Cancel the agent, which can call nothing more, and wait for its end; leave it behind if it does not end.

    The calls that are canceled with it must not outlive its case either.
    """
    turn.cancel()
    toolbox.end()
    turn.add_done_callback(lambda turn: turn.cancelled() or turn.exception())  # otherwise asyncio logs it as not read
    with case_timer.paused():  # what ended the turn decides the run, and not the time that the agent takes to end
        await asyncio.wait([turn, *toolbox.running_calls], timeout=CANCEL_GRACE)
    if not turn.done():
        interrupted = toolbox.trajectory.interrupted
        ignored = f"its agent ignored for {CANCEL_GRACE:g} s that it was canceled, and was left behind"
        toolbox.trajectory.interrupted = f"{interrupted}; {ignored}" if interrupted else ignored


def _result(turn: asyncio.Task[str]) -> str:
    try:
        return turn.result()
    except asyncio.CancelledError as error:
        # The case was not canceled, so the agent canceled its own task.
        replacement = RuntimeError("the agent canceled its own task; return the answer, or call toolbox.quit(reason)")
        raise replacement.with_traceback(error.__traceback__) from None
