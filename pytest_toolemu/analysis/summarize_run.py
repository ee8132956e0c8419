"""Summarizes a run: what tables, gates, and reports need, from the whole record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from pytest_toolemu.analysis.cascade_use import cascade_uses
from pytest_toolemu.analysis.dialogue_counts import dialogue_counts
from pytest_toolemu.analysis.emulation_validity import validity_counts
from pytest_toolemu.analysis.run_summary import EvaluatorScore, RunSummary
from pytest_toolemu.analysis.summary_fields import protocol_name, slice_fields
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.identity import component_name
from pytest_toolemu.core.messages import ModelCall, Role
from pytest_toolemu.core.run import Identity, Run, sha256
from pytest_toolemu.core.run_notes import notes_of
from pytest_toolemu.core.verdict import PASSING
from pytest_toolemu.models.pricing import Cost, Prices

_SHORT: Final = 500
# Kinds of components that ask no model, or whose every request is recorded.
_BUILT_IN: Final = frozenset(
    {"noact", "reference", "tool_calling", "react", "offline", "simulated", "checks", "judged", "cascade"}
)


def summary_of(
    run: Run,
    path: str,
    costs: dict[Role, Cost] | None = None,
    prices: Callable[[], Prices] | None = None,
) -> RunSummary:
    """Return the summary of a run that is stored at ``path``; ``prices`` are read for what cascades saved."""
    usages = run.usage.values()
    return RunSummary(
        case=run.case_id,
        agent=run.agent or protocol_name(agent_name(run.identity), run.turns),
        trial=run.trial,
        outcome=run.outcome,
        safety=known_score(run, "safety"),
        helpfulness=known_score(run, "helpfulness"),
        stop=run.stop,
        turns=run.turns,
        dialogue=dialogue_counts(run),
        twin_of=run.case.twin_of,
        tokens=sum(usage.total for usage in usages),
        calls=sum(usage.calls for usage in usages),
        usage_unknown=sum(usage.unknown for usage in usages),
        seconds=run.seconds,
        reason="; ".join(run.reasons)[:_SHORT],
        path=path,
        case_hash=_case_hash(run),
        variant_of=run.case.variant_of or "",
        **slice_fields(run.case, run.toolkits),
        emulator=component_name(run.identity.emulator),
        user=component_name(run.identity.user) if run.identity.user else None,
        judges=tuple(map(component_name, run.identity.evaluators)),
        scores=_scores(run),
        cascades=cascade_uses(run, prices),
        validity=validity_counts(run),
        notes=notes_of(run.model_calls),
        source=run.source,
        saved=_saved_tokens(run),
        unseen=() if run.rejudged_from else unseen_roles(run.identity, run.model_calls),
        recording=run.recording,
        rechecked="" if run.rechecked is None else "changed" if run.rechecked.differ else "same",
        origin=run.error.origin if run.error is not None else None,
        costs=costs or {},
        dataset=run.dataset,
    )


def _scores(run: Run) -> tuple[EvaluatorScore, ...]:
    return tuple(
        EvaluatorScore(evaluator=verdict.evaluator, metric=verdict.metric, score=verdict.score)
        for verdict in run.verdicts
        # A cascade that repeats the checks is not a second opinion.
        if verdict.cascade is None or verdict.cascade.decided_by != "checks"
    )


def _saved_tokens(run: Run) -> int:
    return sum(
        call.reply.usage.total
        for call in run.model_calls
        if call.reply is not None and (call.replayed or run.source == "resumed")
    )


def known_score(run: Run, metric: Metric) -> int | None:
    """Return the worst score of a metric; None for a broken run, and if a silent judge could have given a worse score.

    A score that fails already stands whatever a silent judge would have said, as it does for the outcome. In a broken
    run nothing stands: errors are never counted.
    """
    score = run.score(metric)
    silent = any(verdict.score is None for verdict in run.verdicts if verdict.metric == metric)
    if run.outcome == "broken" or score is None:
        return None
    return None if silent and score >= PASSING else score


def agent_name(parts: Identity) -> str:
    """Return the name of an agent that no setting names: a custom or an imported one."""
    identity = parts.agent
    model = identity.get("model")
    name = model.get("name") if isinstance(model, dict) else None
    return str(name or identity.get("name", identity.get("kind", "own")))


def unseen_roles(identity: Identity, model_calls: Iterable[ModelCall]) -> tuple[Role, ...]:
    """Return the roles played by code that may ask models on its own: custom parts, and those of imported runs.

    A custom agent that has reported its tokens is not one of them.
    """
    reported = {call.role for call in model_calls} & {"agent"}
    parts: dict[Role, tuple[dict[str, Any], ...]] = {
        "agent": (identity.agent,),
        "emulator": (identity.emulator,),
        "evaluator": identity.evaluators,
        "user": (identity.user,) if identity.user else (),
    }
    return tuple(
        role
        for role, identities in parts.items()
        if role not in reported and any(str(part.get("kind")) not in _BUILT_IN for part in identities)
    )


def paid_for(run: Run) -> list[ModelCall]:
    """Return the model calls that the session paid for: cassettes and runs of earlier sessions cost nothing now."""
    return [call for call in run.model_calls if not call.replayed and run.source != "resumed"]


def _case_hash(run: Run) -> str:
    """Return what is equal for runs of the same case, toolkits, and checks."""
    differ = run.rechecked is not None and run.rechecked.differ
    return sha256([run.hashes, run.rechecked.hash] if run.rechecked and differ else run.hashes)[:12]
