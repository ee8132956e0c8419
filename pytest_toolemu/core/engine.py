"""Run one case: let the agent act, let the evaluators judge, and return the record. Independent of pytest."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, time
from typing import Final

from pytest_toolemu.core.agent_turn import answer_of
from pytest_toolemu.core.conclusion import Conclusion, checked_emulator, checked_user, concluding, judge_all
from pytest_toolemu.core.dataset import edition_of
from pytest_toolemu.core.messages import Recorder, Role
from pytest_toolemu.core.run import Identity, Run, source_of, versions
from pytest_toolemu.core.run_spec import RunSpec
from pytest_toolemu.core.toolbox import Task, Toolbox, UsageMeter, printable
from pytest_toolemu.core.trajectory import Trajectory
from pytest_toolemu.core.verdict import UNJUDGED
from pytest_toolemu.errors import AgentStopped

_JUDGED_LATER: Final = "not judged yet; 'toolemu judge' asks the judges"
_ROLES: Final[tuple[Role, ...]] = ("agent", "emulator", "user", "evaluator")


async def run_case(
    spec: RunSpec,
    cassette: Recorder | None = None,
    meter: UsageMeter | None = None,
    watch: Callable[[Trajectory], None] | None = None,
) -> Run:
    """Let the agent act in the emulated world, let every evaluator judge unless judging is postponed, and decide.

    What happens inside the case becomes the outcome of the run and is not raised. Only three exceptions are raised:
    NotRunError if the session may spend nothing more, MissingToolError if the agent has tools that are not emulated,
    and DocumentError for a broken dataset file. Model calls pass through ``cassette`` if there is one. Tokens that a
    custom agent reports are counted by ``meter``. ``watch`` gets the trajectory before the agent begins, and may
    read it from any thread while the case runs.
    """
    edition_of(spec.resolved_case.path)  # raises for a broken dataset file before anything is spent on the run
    started, begun = time(), perf_counter()
    trajectory = Trajectory(spec.resolved_case, spec.seed, turns=spec.limits.turns)
    trajectory.ledger.recorder = cassette
    if watch is not None:
        watch(trajectory)
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
            await judge_all(trajectory, spec.evaluators, spec.required_scores, conclusion)
    # If the agent had finished, only judging timed out, and 'toolemu judge' can still judge the run later.
    if conclusion.timed_out and not has_acted:
        trajectory.stop, trajectory.stop_reason = "timeout", f"{timeout:g} s passed"
        if trajectory.interrupted:
            conclusion.reasons = (f"{message}; {trajectory.interrupted}",)
    record = _record(spec, identity, trajectory, conclusion)
    return record.model_copy(update={"started": started, "seconds": perf_counter() - begun})


def _record(spec: RunSpec, identity: Identity, trajectory: Trajectory, conclusion: Conclusion) -> Run:
    path, ledger = spec.resolved_case.path, trajectory.ledger
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
        agent_warning=trajectory.agent_warning,
        verdicts=conclusion.verdicts,
        thresholds=spec.required_scores,
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
