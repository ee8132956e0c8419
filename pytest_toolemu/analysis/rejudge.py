"""Judge a stored run again. No agent acts and no tool is emulated."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.analysis.thoughts import steps_with_thoughts
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.conclusion import judge, missing_verdicts
from pytest_toolemu.core.environment import versions
from pytest_toolemu.core.identity import identity_of, verdict_names
from pytest_toolemu.core.protocols import Evaluator
from pytest_toolemu.core.run import Run, sha256
from pytest_toolemu.core.trajectory import Trajectory
from pytest_toolemu.core.verdict import Verdict

FINISHED: Final = ("final", "quit", "step_limit", "token_limit")
"""Stop reasons after which a run can be judged; after an error or a timeout the trajectory is incomplete."""


def fingerprint(run: Run) -> str:
    """Return a hash of what a judge sees of a run: case, toolkits, calls, observations, dialogue, and the end.

    It is equal for all records of one trajectory, no matter which evaluators judged it. Labels refer to it.
    """
    steps = [[step.call.name, step.call.arguments, step.observation.content] for step in run.steps]
    said = [[one.step, one.by, one.text] for one in run.dialogue]
    # Runs without a dialogue keep the hash that earlier versions gave them.
    return sha256([run.case_id, run.hashes, steps, run.answer, run.stop, run.stop_reason, *([said] if said else [])])[
        :16
    ]


def same_run(run: Run) -> str:
    """Return a hash that is equal for all records of one run, no matter who judged it, and differs between runs.

    Besides what a judge sees, it covers agent, emulator, trial, seed, and limits, because two agents or two trials
    may do exactly the same.
    """
    conditions = [run.agent, run.identity.agent, run.identity.emulator, run.trial, run.seed, run.limits]
    return sha256([fingerprint(run), conditions])


def trajectory_of(run: Run) -> Trajectory:
    """Return the trajectory of a record, with an empty ledger."""
    return Trajectory(
        ResolvedCase(run.case, run.toolkits, Path(run.case_path)),
        run.seed,
        list(run.steps),
        run.answer,
        run.stop,
        run.stop_reason,
        list(run.discarded),
        dialogue=list(run.dialogue),
        turns=run.turns,
    )


def key_again(run: Run, evaluators: Sequence[Evaluator], keep: bool = False) -> str:
    """Return the key of a run that these evaluators judge again.

    It always differs from the key of a live run with the same evaluators, which may have another trajectory.
    """
    identities = [identity_of(evaluator, in_dialogue=run.turns > 1) for evaluator in evaluators]
    content = ["judged again", run.key, run.trial, keep, identities]
    return sha256([*content, run.rechecked.hash] if run.rechecked else content)


def required_scores(run: Run, thresholds: Mapping[Metric, int], keep: bool = False) -> dict[Metric, int]:
    """Return the thresholds of the run for these metrics, else those given; with ``keep`` also its other thresholds."""
    required = {metric: run.thresholds.get(metric, least) for metric, least in thresholds.items()}
    return {**run.thresholds, **required} if keep else required


async def rejudge(
    run: Run,
    evaluators: Sequence[Evaluator],
    *,
    thresholds: Mapping[Metric, int],
    timeout: float,
    keep: bool = False,
    source: str = "",
) -> Run:
    """Return the run with verdicts of these evaluators and a new outcome; ``source`` is the path of its record.

    The run's own thresholds take precedence over ``thresholds``, and metrics without a threshold there are not
    required. ``timeout`` is in seconds. With ``keep`` the verdicts of other evaluators stay; verdicts of the same
    evaluators are always replaced. Messages, usage, and times are those of judging. A run whose agent did not finish
    keeps its outcome.
    """
    started, begun = time.time(), time.perf_counter()
    trajectory = trajectory_of(run)
    ledger = trajectory.ledger
    identities = tuple(identity_of(evaluator, in_dialogue=run.turns > 1) for evaluator in evaluators)
    kept_identities, kept_verdicts = _kept(run, evaluators) if keep else ((), ())
    judgment: dict[str, Any] = {"verdicts": kept_verdicts}
    if run.stop in FINISHED:
        required = required_scores(run, thresholds, keep)
        conclusion = await judge(trajectory, evaluators, required, timeout, kept_verdicts)
        judgment = {
            "verdicts": conclusion.verdicts,
            "outcome": conclusion.outcome,
            "reasons": conclusion.reasons,
            "error": conclusion.error,
            "thresholds": required,
        }
    steps, thought = steps_with_thoughts(run)
    return run.model_copy(
        update={
            **judgment,
            "steps": steps,
            "thought": thought,
            "source": "live",
            "resumed_from": None,
            "rejudged_from": source or run.key,
            "recording": None,
            "key": key_again(run, evaluators, keep),
            "identity": run.identity.model_copy(update={"evaluators": (*kept_identities, *identities)}),
            "messages": tuple(ledger.messages),
            "model_calls": tuple(ledger.model_calls),
            "usage": {"evaluator": ledger.usage("evaluator")} if ledger.model_calls else {},
            "started": started,
            "seconds": time.perf_counter() - begun,
            "versions": {**run.versions, **versions()},
        }
    )


def _kept(run: Run, evaluators: Sequence[Evaluator]) -> tuple[tuple[dict[str, Any], ...], tuple[Verdict, ...]]:
    """Return identities and verdicts of the run's evaluators that none of these replaces.

    A judge is the same if its model and rubric are.
    """
    identities = [identity_of(evaluator) for evaluator in evaluators]
    replaced = {verdict for identity in identities for verdict in verdict_names(identity)}
    kept = tuple(identity for identity in run.identity.evaluators if not replaced.intersection(verdict_names(identity)))
    if run.cut_off and run.stop in FINISHED:  # time ran out before an evaluator answered
        return kept, tuple(verdict for one in kept for verdict in missing_verdicts(one, "; ".join(run.reasons)))
    return kept, tuple(verdict for verdict in run.verdicts if (verdict.evaluator, verdict.metric) not in replaced)
