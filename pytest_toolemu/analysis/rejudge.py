"""Judge a stored run again. No agent acts and no tool is emulated."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_toolemu.agents.model_agents import text_before_decision
from pytest_toolemu.core.case import Case, ResolvedCase
from pytest_toolemu.core.case_loading import case_id, load_case
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.conclusion import judge, missing_verdicts
from pytest_toolemu.core.identity import identity_of, refuse_unknown_judge, verdict_names
from pytest_toolemu.core.messages import ModelCall, Reply
from pytest_toolemu.core.run import (
    PASSING,
    Evaluator,
    Rechecked,
    Run,
    Step,
    Trajectory,
    Verdict,
    hashes_of,
    in_force,
    sha256,
    versions,
)
from pytest_toolemu.errors import UsageError
from pytest_toolemu.formats.text import counted

FINISHED: Final = ("final", "quit", "step_limit", "token_limit", "unknown")
"""Stop reasons after which a run can be judged; after an error or a timeout the trajectory is incomplete."""


def fingerprint(run: Run) -> str:
    """Return a hash of what a judge sees of a run: case, toolkits, calls, observations, dialogue, and the end.

    It is equal for all records of one trajectory, no matter which evaluators judged it. Labels refer to it.
    """
    steps = [
        [step.call.name, step.call.arguments, None if step.observation.is_unknown else step.observation.content]
        for step in run.steps
    ]
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
        claims=run.claims,
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
    own = run.case.thresholds.model_dump(exclude_none=True)
    required = {
        metric: run.thresholds.get(metric, own.get(metric, least))
        for metric, least in thresholds.items()
        if run.case.judges(metric) or len(thresholds) == 1
    }
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
    keeps its outcome. UsageError if the run's rule of combination names none of the judges.
    """
    started, begun = time.time(), time.perf_counter()
    trajectory = trajectory_of(run)
    ledger = trajectory.ledger
    identities = tuple(identity_of(evaluator, in_dialogue=run.turns > 1) for evaluator in evaluators)
    kept_identities, kept_verdicts = _kept(run, evaluators) if keep else ((), ())
    refuse_unknown_judge(run.combine, (*kept_identities, *identities))
    judgment: dict[str, Any] = {"verdicts": kept_verdicts}
    if run.stop in FINISHED:
        required = required_scores(run, thresholds, keep)
        conclusion = await judge(trajectory, evaluators, required, timeout, kept_verdicts, run.combine)
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


_SHOWN: Final = 5


@dataclass(frozen=True)
class CurrentCases:
    """Case files as they are now, with their cases, by case ID; ``source`` is the path that the user named."""

    source: Path
    cases: dict[str, tuple[Path, Case]]

    @classmethod
    def read(cls, source: Path, files: Iterable[Path], case_ids: Iterable[str]) -> CurrentCases:
        """Read the files of these cases.

        Raise UsageError if a case has no file or several, and DocumentError for an invalid file.
        """
        by_id: dict[str, list[Path]] = {}
        for path in files:
            by_id.setdefault(case_id(path), []).append(path)
        ids = sorted(set(case_ids))
        if missing := [name for name in ids if name not in by_id]:
            listed = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
            raise UsageError(
                f"{source}: there is no file for {len(missing)} of {counted(len(ids), 'case')} ({listed}); name a "
                "folder with the files of all cases, or omit the sessions with these cases"
            )
        if twice := next((name for name in ids if len(by_id[name]) > 1), None):
            raise UsageError(
                f"{source}: {' and '.join(map(str, by_id[twice]))} have the same ID; name the folder of only one of "
                "them"
            )
        return cls(source, {name: (by_id[name][0], load_case(by_id[name][0]).case) for name in ids})

    @property
    def name(self) -> str:
        """Name of these checks in manifests; equal names mean equal checks and thresholds."""
        rules = {name: [_rules(case), case.thresholds.model_dump()] for name, (_, case) in sorted(self.cases.items())}
        return f"checks of {self.source} #{sha256(rules)[:8]}"

    @property
    def files(self) -> dict[str, dict[str, str]]:
        """File and content hash of each case, for a manifest."""
        return {
            name: {"file": path.as_posix(), "hash": hashes_of(case, ())["case"]}
            for name, (path, case) in self.cases.items()
        }

    def apply(self, run: Run) -> Run:
        """Return the run with today's checks and thresholds. Instruction and trajectory do not change."""
        if run.case_id not in self.cases:
            raise UsageError(
                f"the record of a run of {run.case_id!r} has the file name of another case; rename or remove it"
            )
        path, today = self.cases[run.case_id]
        today = today.in_conversation if run.turns > 1 else today
        if run.trap is not None:
            raise UsageError(
                f"{path}: its checks are about its own rows, but a run of {run.case_id!r} used rows that a model "
                "built; omit the record"
            )
        if run.case.world != today.world and any(check.queries_rows for check in today.checks):
            raise UsageError(
                f"{path}: has checks of rows, but a run of {run.case_id!r} used rows that differ from this file, so "
                "the checks do not apply to it; run the case again, or omit the record"
            )
        at_run = run.rechecked.at_run if run.rechecked else run.case.checks
        rechecked = Rechecked(
            file=path.as_posix(), hash=hashes_of(today, ())["case"], differ=at_run != today.checks, at_run=at_run
        )
        own = run.case.thresholds.model_dump(exclude_none=True)
        # If the case had its own threshold, the record does not say what the session required.
        session: dict[Metric, int] = {
            metric: PASSING if metric in own else score for metric, score in run.thresholds.items()
        }
        changed = {"checks": today.checks, "thresholds": today.thresholds}
        return run.model_copy(
            update={
                "case": run.case.model_copy(update=changed),
                "thresholds": in_force(today, session),
                "rechecked": rechecked,
            }
        )


def _rules(case: Case) -> list[dict[str, object]]:
    return [check.model_dump(mode="json") for check in (*case.checks, *case.in_conversation.checks)]


@dataclass(frozen=True)
class Thoughts:
    """The thought before each step, in order, and the thought before the end; empty strings where none is known."""

    steps: tuple[str, ...]
    end: str


def thoughts_of(run: Run) -> Thoughts:
    """Return the thoughts stored in the record, or else those in the recorded replies of the agent's model.

    A thought belongs to the first tool call after its reply. Replies without a call are added to the next call.
    """
    model_calls = [call for call in run.model_calls if call.role == "agent" and call.reply is not None]
    thoughts = []
    for step in run.steps:
        before = [call for call in model_calls if call.started <= step.started]
        model_calls = model_calls[len(before) :]
        replies = [call.reply for call in before if call.reply is not None]
        texts = (text for reply in replies for text in (*_thinking(reply), _text_before_call(reply, run)))
        thoughts.append(step.thought or _joined(texts))
    return Thoughts(tuple(thoughts), run.thought or _joined(_before_end(model_calls, run)))


def steps_with_thoughts(run: Run) -> tuple[tuple[Step, ...], str]:
    """Return the steps of a run with their thoughts filled in, and the thought before the end.

    A rejudged record does not keep the model's replies, so its thoughts must be stored in the steps.
    """
    thoughts = thoughts_of(run)
    steps = zip(run.steps, thoughts.steps, strict=True)
    return tuple(step.model_copy(update={"thought": thought}) for step, thought in steps), thoughts.end


def _before_end(model_calls: Iterable[ModelCall], run: Run) -> Iterator[str]:
    """Yield the thoughts of the last replies, without the answer itself."""
    for call in model_calls:
        if call.reply is not None:
            text = _text_before_call(call.reply, run)
            is_answer = text in run.answer or text == f"QUIT: {run.stop_reason}"
            yield _joined((*_thinking(call.reply), "" if is_answer else text))


def _text_before_call(reply: Reply, run: Run) -> str:
    text = text_before_decision(reply.text) if run.identity.agent.get("kind") == "react" else reply.text
    is_said = any(utterance.text == text.strip() for utterance in run.dialogue)
    return "" if is_said else text.strip()


def _thinking(reply: Reply) -> Iterator[str]:
    """Yield the thinking blocks that the provider returned with the reply."""
    for block in reply.native or ():
        thinking = block.get("thinking")
        if isinstance(thinking, str):
            yield thinking


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(text.strip() for text in texts if text.strip())
