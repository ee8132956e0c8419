"""A stored run judged again: no agent acts, and no tool answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from pytest_toolemu.analysis.thoughts import steps_with_thoughts
from pytest_toolemu.core.case import Metric, ResolvedCase
from pytest_toolemu.core.engine import judge
from pytest_toolemu.core.environment import versions
from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.protocols import Evaluator
from pytest_toolemu.core.run import JUDGED_AGAIN, Run, Verdict, sha256
from pytest_toolemu.core.trajectory import Trajectory
from pytest_toolemu.evaluators.model_judge import judge_name
from pytest_toolemu.evaluators.rubrics import METRICS

FINISHED: Final = ("final", "quit", "step_limit", "token_limit")
"""How an agent's turn ends that can be judged; an error or a time-out leaves half a trajectory."""


def fingerprint(run: Run) -> str:
    """What a judge is shown of a run, hashed: case, toolkits, calls, observations, the end. Labels are bound to it.

    It is the same for every record of one trajectory, whoever judged it.
    """
    steps = [[step.call.name, step.call.arguments, step.observation.content] for step in run.steps]
    return sha256([run.case_id, run.hashes, steps, run.answer, run.stop, run.stop_reason])[:16]


def same_run(run: Run) -> str:
    """Return a hash that is equal for all records of one run, whoever judged it, and differs between runs.

    It covers agent, emulator, trial, seed and limits besides what judges are shown, as two agents or two trials
    may do exactly the same.
    """
    made = [run.agent, run.identity.agent, run.identity.emulator, run.trial, run.seed, run.limits]
    return sha256([fingerprint(run), made])


def trajectory_of(run: Run) -> Trajectory:
    """The trajectory of a record, with an empty ledger."""
    return Trajectory(
        ResolvedCase(run.case, run.toolkits, Path(run.case_path)),
        run.seed,
        list(run.steps),
        run.answer,
        run.stop,
        run.stop_reason,
        list(run.discarded),
    )


def key_again(run: Run, evaluators: Sequence[Evaluator], keep: bool = False) -> str:
    """The key of a run judged by others: never that of a run made from scratch, which may come out otherwise."""
    content = ["judged again", run.key, run.trial, keep, [identity_of(evaluator) for evaluator in evaluators]]
    return sha256([*content, run.rechecked.hash] if run.rechecked else content)


async def rejudge(
    run: Run,
    evaluators: Sequence[Evaluator],
    *,
    thresholds: Mapping[Metric, int],
    timeout: float,
    keep: bool = False,
    source: str = "",
) -> Run:
    """The run with the verdicts of these evaluators, and its outcome decided anew.

    The thresholds that the run was made with go before ``thresholds``; metrics absent from the latter are not required.
    ``keep`` leaves the other evaluators' verdicts beside the new ones; the same evaluator's are replaced. The record
    has only what was asked and used now. A run whose agent never finished keeps its outcome: there is nothing to judge.
    """
    started, begun = time.time(), time.perf_counter()
    trajectory = trajectory_of(run)
    ledger = trajectory.ledger
    identities = tuple(identity_of(evaluator) for evaluator in evaluators)
    others, beside = _others(run, evaluators) if keep else ((), ())
    changed: dict[str, Any] = {"verdicts": beside}
    if run.stop in FINISHED:
        wanted = {metric: run.thresholds.get(metric, least) for metric, least in thresholds.items()}
        wanted = {**run.thresholds, **wanted} if keep else wanted
        judged = await judge(trajectory, evaluators, wanted, timeout, beside)
        changed = {
            "verdicts": judged.verdicts,
            "outcome": judged.outcome,
            "reasons": judged.reasons,
            "error": judged.error,
            "thresholds": wanted,
        }
    steps, thought = steps_with_thoughts(run)
    return run.model_copy(
        update={
            **changed,
            "steps": steps,
            "thought": thought,
            "source": "live",
            "resumed_from": None,
            "recording": None,
            "key": key_again(run, evaluators, keep),
            "identity": run.identity.model_copy(update={"evaluators": (*others, *identities)}),
            "messages": tuple(ledger.messages),
            "exchanges": tuple(ledger.exchanges),
            "usage": {"evaluator": ledger.usage("evaluator")} if ledger.exchanges else {},
            "started": started,
            "seconds": time.perf_counter() - begun,
            "versions": {**run.versions, **versions(), JUDGED_AGAIN: source or run.key},
        }
    )


def _others(run: Run, evaluators: Sequence[Evaluator]) -> tuple[tuple[dict[str, Any], ...], tuple[Verdict, ...]]:
    """The run's evaluators that are none of these, with their verdicts: a judge is the same by model and rubric."""
    now = [identity_of(evaluator) for evaluator in evaluators]
    replaced = {(name, metric) for identity in now for name, metric in _verdicts_of(identity)}
    return (
        tuple(one for one in run.identity.evaluators if not replaced & _verdicts_of(one)),
        tuple(verdict for verdict in run.verdicts if (verdict.evaluator, verdict.metric) not in replaced),
    )


def _verdicts_of(identity: dict[str, Any]) -> set[tuple[str, Metric]]:
    """The evaluator and metric that the verdicts of an evaluator bear; both metrics where it does not say."""
    model = identity.get("model")
    rubric = next((name for name in METRICS if name == identity.get("rubric")), None)
    if identity.get("kind") == "judged" and isinstance(model, dict) and rubric is not None:
        return {(judge_name(model, rubric), METRICS[rubric])}
    name, metric = str(identity.get("name", identity.get("kind"))), identity.get("metric")
    return {(name, one) for one in get_args(Metric) if metric in (None, one)}
