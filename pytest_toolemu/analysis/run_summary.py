"""Run summaries: what tables, gates, and reports keep of each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from typing import Any, Final, Literal, get_args

from pydantic import Field

from pytest_toolemu.analysis.emulation_validity import validity_counts
from pytest_toolemu.core.case import Case, Edition
from pytest_toolemu.core.case_vocabulary import Asking, Clue, Metric, RiskType, Score, Severity
from pytest_toolemu.core.identity import ComponentName, component_name, runs_own_code
from pytest_toolemu.core.messages import AskingStage, ModelCall, Role, Stage
from pytest_toolemu.core.run import (
    PASSING,
    STAGE_NAMES,
    CassetteUse,
    Identity,
    Origin,
    Outcome,
    Run,
    RunSource,
    Verdict,
    claims_note,
    combination,
    combine,
    sha256,
)
from pytest_toolemu.core.run_notes import NoteKind, RunNote, notes_of
from pytest_toolemu.core.toolkit import Toolkit
from pytest_toolemu.formats.text import counted, usd_text
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.models.pricing import Cost, Prices, costs_of
from pytest_toolemu.settings.model_names import CHECKS

NOT_RUN: Final = "not run"
"""Outcome in a row, never in a run: the session's budget or deadline ended before the case had a verdict."""

MODEL_JUDGE_KIND: Final = "judged"
"""Kind of a judge that is a model of the session, so that ``toolemu calibrate`` can ask it."""


ReportedOutcome = Outcome | Literal["not run"]
"""Outcome of a run, or that there is none, as in NOT_RUN."""

OUTCOMES: Final[tuple[ReportedOutcome, ...]] = ("failed", "broken", "inconclusive", "unjudged", "not run", "passed")
"""All outcomes, the most urgent one first."""

_NO_SCORE: Final = 4


class EvaluatorScore(Record):
    """The score that one evaluator gave one metric of a run; None if it gave none."""

    evaluator: str
    metric: Metric
    score: Score | None = None
    repeats_checks: bool = False
    """Whether a cascade took it from the checks of the case, so that it is no second opinion."""


UNKNOWN: Final = "unknown"
"""Slice of a case that states nothing for a dimension."""

Dimension = Literal["risk_type", "toolkit", "category", "severity", "asking", "clue", "gap", "split", "tag"]
DIMENSIONS: Final[tuple[Dimension, ...]] = get_args(Dimension)

Slices = dict[Dimension, tuple[str, ...]]
"""The values that a case states for each dimension; dimensions without a value are left out."""


class CascadeUse(Record):
    """How a cascade formed one verdict; ``cheap`` and ``strong`` are what the requests to its judges cost."""

    evaluator: str
    metric: Metric
    decided_by: Stage
    is_strong_asked: bool
    cheap: Cost = Cost()
    strong: Cost = Cost()


class RunSummary(Record):
    """What summaries, gates, and baselines need of one run. ``outcome`` is None for a case that has none yet."""

    case: str
    agent: str = "?"
    trial: int = 1
    outcome: ReportedOutcome | None = None
    safety: Score | None = None
    helpfulness: Score | None = None
    honesty: Score | None = None
    stop: str = ""
    turns: int = 1
    """Number of messages that the agent could write to the user, counting its answer."""
    dialogue: dict[str, int] = Field(default_factory=dict)
    """Counts of what the user did, by what is counted; empty for a run with one turn."""
    twin_of: str | None = None
    tokens: int = 0
    usage_unknown: int = 0
    """Requests for which the endpoint reported no usage."""
    seconds: float = 0.0
    reason: str = ""
    path: str = ""
    """File of the record; empty without one."""
    item: str = ""
    """Node id of the test item; empty for a stored run."""
    case_hash: str = ""
    """Equal for runs of the same case, toolkits, and checks; empty for a case that was not run."""
    variant_of: str = ""
    """The case of which this one is a variant; empty if it is none."""
    slices: Slices = Field(default_factory=dict)
    claims: str = ""
    """What the discarded text of a recording claims; empty if it has none."""
    emulator: ComponentName | None = None
    user: ComponentName | None = None
    """The user of a conversation; None in a run with one turn."""
    judges: tuple[ComponentName, ...] = ()
    """All evaluators, also the checks of the cases."""
    scores: tuple[EvaluatorScore, ...] = ()
    combination: str = ""
    """How the scores of several judges were combined, such as ``worst of 2 judges``; empty for fewer judges."""
    cascades: tuple[CascadeUse, ...] = ()
    """How each cascade formed its verdict."""
    validity: dict[str, int] = Field(default_factory=dict)
    """Counts of the emulation's validity, by what is counted."""
    notes: tuple[RunNote, ...] = ()
    """What models did otherwise than configured, and the names under which they answered."""
    source: RunSource = "live"
    saved: int = 0
    """Tokens that were not used now: of recorded replies, and of runs that an earlier session made."""
    unseen: tuple[Role, ...] = ()
    """Roles whose requests were not recorded, so that what they used and cost is unknown."""
    recording: CassetteUse | None = None
    rechecked: Literal["", "same", "changed"] = ""
    """Whether checks of a later case file were applied, and whether they differ from those at the time of the run."""
    origin: Origin | None = None
    """Where the exception that broke the run was raised."""
    is_mistake: bool = False
    """Whether the case was not run because of the user's mistake, which ends the session."""
    costs: dict[Role, Cost] = Field(default_factory=dict)
    dataset: Edition | None = None

    @property
    def urgency(self) -> tuple[object, ...]:
        """Sort key of reports: failed runs, then runs without a verdict, then passed ones; lower scores first."""
        scores = (_NO_SCORE if score is None else score for score in (self.safety, self.helpfulness))
        return (OUTCOMES.index(self.outcome or "broken"), *scores, self.case, self.agent, self.trial)

    @property
    def case_notes(self) -> tuple[str, tuple[RunNote, ...]]:
        """The notes of the run with its case, as they are summarized for several runs."""
        return self.case, self.notes

    def count_of_notes(self, kind: NoteKind) -> int:
        """Return the number of requests that notes of one kind are about."""
        return sum(note.count for note in self.notes if note.kind == kind)

    @property
    def cluster(self) -> str:
        """The case whose runs vary together: a case and its variants are one cluster."""
        return self.variant_of or self.case

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RunSummary:
        """Return the summary from the result of ``as_json``; keys may be missing."""
        return cls.model_validate_json(dumps(content))

    def as_json(self) -> dict[str, Any]:
        """Return the summary as JSON for a test report. The item is left out because the report names it."""
        return self.model_dump(mode="json", exclude={"item"})

    def score(self, metric: Metric) -> int | None:
        """Return the lowest score of a metric; None if no evaluator gave one."""
        return {"safety": self.safety, "helpfulness": self.helpfulness, "honesty": self.honesty}[metric]

    def after(self, before: RunSummary) -> RunSummary:
        """Return the summary with what an earlier attempt at the item has used, because that was paid for as well."""
        if before.source == "resumed":
            return self
        roles = (*before.costs, *self.costs)
        return self.model_copy(
            update={
                "costs": {role: before.costs.get(role, Cost()) + self.costs.get(role, Cost()) for role in roles},
                "tokens": self.tokens + before.spent,
                "usage_unknown": self.usage_unknown + before.usage_unknown,
                "unseen": tuple(dict.fromkeys((*before.unseen, *self.unseen))),
            }
        )

    @property
    def asking(self) -> str:
        """Whether asking the user is needed, acceptable, or needless, if the case says so."""
        return slice_values(self, "asking")[0]

    @property
    def asked(self) -> bool | None:
        """Whether the agent asked the user something; None if it could not, or if the run has no verdict."""
        has_verdict = self.outcome in ("passed", "failed")
        return self.dialogue["replies"] > 0 if self.dialogue and has_verdict else None

    @property
    def spent(self) -> int:
        """Tokens used by this session."""
        return self.tokens - self.saved

    @property
    def incomplete(self) -> bool:
        """Whether ``tokens`` is a lower bound."""
        return bool(self.usage_unknown or self.unseen)

    @property
    def known_tokens(self) -> int | None:
        """Tokens of all roles: a lower bound if some are unknown, None if all are."""
        return None if self.incomplete and not self.tokens else self.tokens

    @property
    def unsafe(self) -> bool | None:
        """Whether the run is unsafe by the paper's threshold; None without a safety score."""
        return None if self.safety is None else self.safety < PASSING


def origins(runs: Iterable[RunSummary]) -> list[str]:
    """Return a line for each dataset that cases were run of: name, version, hash, and the number of cases."""
    cases: dict[str, set[str]] = {}
    for run in runs:
        if run.case_hash:
            cases.setdefault(str(run.dataset or ""), set()).add(run.case)
    return [
        f"{'dataset ' + name if name else 'no dataset'}: {counted(len(ids), 'case')}"
        for name, ids in sorted(cases.items(), reverse=True)
    ]


def judges_of(runs: Iterable[RunSummary]) -> list[ComponentName]:
    """Return every judge of these runs, sorted by name: all evaluators except the checks of the cases."""
    return sorted({judge for run in runs for judge in run.judges if judge.kind != CHECKS}, key=str)


def slices_of(case: Case, toolkits: Sequence[Toolkit], tags: Sequence[str] = ()) -> Slices:
    """Return the slices that a case is in; ``tags`` are those of an imported run."""
    stated: Slices = {
        "risk_type": case.risks.types,
        "toolkit": case.toolkits,
        "category": (toolkits[0].category,) if toolkits else (),
        "severity": (case.severity,),
        "asking": (case.asking,) if case.asking else (),
        "clue": case.clues,
        "gap": (gap_kind(case),),
        "split": (case.split,),
        "tag": (*case.tags, *tags),
    }
    return {dimension: values for dimension, values in stated.items() if values}


def gap_kind(case: Case) -> str:
    """Return what the instruction leaves out: task, safety, both, or none."""
    gaps = case.underspecified
    return "both" if gaps.task and gaps.safety else "task" if gaps.task else "safety" if gaps.safety else "none"


def protocol_name(agent: str, turns: int) -> str:
    """Return the name of an agent in reports: with the number of turns if it could talk with the user."""
    return f"{agent} ({turns} turns)" if turns > 1 else agent


_SHORT: Final = 500
# Kinds of components that ask no model, or whose every request is recorded.
_BUILT_IN: Final = frozenset(
    {"noact", "reference", "tool_calling", "react", "offline", "simulated", "checks", "judged", "cascade"}
)


def summary_of(
    run: Run, path: str, costs: dict[Role, Cost] | None = None, prices: Callable[[], Prices] | None = None
) -> RunSummary:
    """Return the summary of a run that is stored at ``path``; ``prices`` are read for what cascades saved."""
    usages, rechecked = run.usage.values(), run.rechecked
    return RunSummary(
        case=run.case_id,
        agent=run.agent or protocol_name(agent_name(run.identity), run.turns),
        trial=run.trial,
        outcome=run.outcome,
        safety=known_score(run, "safety"),
        helpfulness=known_score(run, "helpfulness"),
        honesty=known_score(run, "honesty"),
        stop=run.stop,
        turns=run.turns,
        dialogue=dialogue_counts(run),
        twin_of=run.case.twin_of,
        tokens=sum(usage.total for usage in usages),
        usage_unknown=sum(usage.unknown for usage in usages),
        seconds=run.seconds,
        reason="; ".join(run.reasons)[:_SHORT],
        path=path,
        case_hash=sha256([run.hashes, rechecked.hash] if rechecked and rechecked.differ else run.hashes)[:12],
        variant_of=run.case.variant_of or "",
        slices=slices_of(run.case, run.toolkits, run.tags),
        emulator=component_name(run.identity.emulator),
        user=component_name(run.identity.user) if run.identity.user else None,
        judges=tuple(map(component_name, run.identity.evaluators)),
        scores=tuple(
            EvaluatorScore(
                evaluator=verdict.evaluator,
                metric=verdict.metric,
                score=verdict.score,
                repeats_checks=verdict.cascade is not None and verdict.cascade.decided_by == CHECKS,
            )
            for verdict in run.verdicts
        ),
        combination=_combination(run),
        cascades=cascade_uses(run, prices),
        claims=claims_note(run.steps, run.claims),
        validity=validity_counts(run),
        notes=_notes(run),
        source=run.source,
        saved=sum(
            call.reply.usage.total
            for call in run.model_calls
            if call.reply is not None and (call.replayed or run.source == "resumed")
        ),
        unseen=() if run.rejudged_from else unseen_roles(run.identity, run.model_calls),
        recording=run.recording,
        rechecked="" if rechecked is None else "changed" if rechecked.differ else "same",
        origin=run.error.origin if run.error is not None else None,
        costs=costs or {},
        dataset=run.dataset,
    )


def _combination(run: Run) -> str:
    judges = Counter(verdict.metric for verdict in run.verdicts if verdict.evaluator != CHECKS)
    return combination(run.combine, max(judges.values(), default=0))


def known_score(run: Run, metric: Metric) -> int | None:
    """Return the combined score of a metric, rounded down; None for a broken run, and if a missing verdict decides.

    A score that fails, or passes, whatever the missing verdict would have said stands, as it does for the outcome. In a
    broken run nothing stands: errors are never counted.
    """
    score = None if run.outcome == "broken" else combine(run.verdicts, metric, run.combine)
    if score is None or score.low < PASSING <= score.high:
        return None
    return int(score.low if score.low >= PASSING else score.high)


def _notes(run: Run) -> tuple[RunNote, ...]:
    notes = notes_of(run.model_calls)
    if run.steps or run.stop != "final" or not runs_own_code(run.identity.agent):
        return notes
    return (*notes, RunNote(kind="no tool called", model=agent_name(run.identity), text="", count=1))


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


def dialogue_counts(run: Run) -> dict[str, int]:
    """Return the number of replies, of those of some kinds, and of rejected ones; empty for a run with one turn."""
    if run.turns == 1:
        return {}
    replies = [utterance for utterance in run.dialogue if utterance.by == "user"]
    repairs = [problem for reply in replies for problem in reply.repairs]
    # Collection imports this module, and needs no emulator.
    from pytest_toolemu.emulators.users import INVENTED, LEAK

    return {
        "replies": len(replies),
        "unknown": sum(reply.kind == "unknown" for reply in replies),
        "refused": sum(reply.kind == "refuse" for reply in replies),
        "consents": sum(reply.kind == "consent" for reply in replies),
        "corrected": sum(bool(reply.repairs) for reply in replies),
        "leaks": sum(problem.startswith(LEAK) for problem in repairs),
        "invented": sum(problem.startswith(INVENTED) for problem in repairs),
    }


VALUES: Final[dict[Dimension, tuple[str, ...]]] = {
    "risk_type": (*get_args(RiskType), UNKNOWN),
    "severity": (*get_args(Severity), UNKNOWN),
    "asking": (*get_args(Asking), UNKNOWN),
    "clue": (*get_args(Clue), UNKNOWN),
    "gap": ("task", "safety", "both", "none", UNKNOWN),
    "split": ("public", "heldout", UNKNOWN),
}
"""All values of the dimensions with a closed vocabulary; toolkits and their categories have any name."""


def slices(runs: Iterable[RunSummary], by: Dimension) -> dict[str, tuple[RunSummary, ...]]:
    """Group runs by a dimension. A case with several risk types is in several slices."""
    groups: dict[str, list[RunSummary]] = {}
    for run in runs:
        for value in slice_values(run, by):
            groups.setdefault(value, []).append(run)
    return {value: tuple(groups[value]) for value in sorted(groups)}


def slice_values(run: RunSummary, by: Dimension) -> tuple[str, ...]:
    """Return the slices of a dimension that a run is in; of several toolkits, only the primary one counts."""
    values = tuple(dict.fromkeys(run.slices.get(by, (UNKNOWN,))))
    return values[:1] if by == "toolkit" else values


@dataclass(frozen=True)
class CascadeTotal:
    """The use of one cascade for one metric in many runs."""

    uses: tuple[CascadeUse, ...]

    @property
    def decided(self) -> dict[Stage, int]:
        """The number of verdicts that each stage decided."""
        counts = Counter(use.decided_by for use in self.uses)
        return {stage: counts[stage] for stage in STAGE_NAMES}

    @property
    def not_asked(self) -> int:
        """The number of verdicts for which the strong judge was not asked."""
        return sum(not use.is_strong_asked for use in self.uses)

    @property
    def cheap(self) -> Cost:
        """What the requests to the cheap judge cost."""
        return sum((use.cheap for use in self.uses), Cost())

    @property
    def strong(self) -> Cost:
        """What the requests to the strong judge cost."""
        return sum((use.strong for use in self.uses), Cost())

    @property
    def saved_tokens(self) -> int | None:
        """Estimated tokens that the strong judge did not use; None if it was never asked, so the saving is unknown."""
        strong = self.strong
        tokens = strong.input + strong.output
        return round(tokens * self._not_asked_per_asked) if tokens else None

    @property
    def saved_usd(self) -> float | None:
        """Estimated cost of the strong judge that was avoided, minus the cost of the cheap judge; None if unknown."""
        if not self.strong.calls or self.strong.unknown or self.cheap.unknown:
            return None
        return self.strong.usd * self._not_asked_per_asked - self.cheap.usd

    @property
    def _not_asked_per_asked(self) -> float:
        asked = len(self.uses) - self.not_asked
        return self.not_asked / asked if asked else 0.0

    @property
    def line(self) -> str:
        """The cascade and its use in one line."""
        return f"{self.name}: {self.text}"

    @property
    def name(self) -> str:
        """The cascade and the metric."""
        return f"{self.uses[0].evaluator}, {self.uses[0].metric}"

    @property
    def text(self) -> str:
        """How many verdicts each stage decided, and about how much that saved."""
        decided = ", ".join(f"{STAGE_NAMES[stage]} {count:,}" for stage, count in self.decided.items())
        head = f"{counted(len(self.uses), 'verdict')}, decided by {decided}"
        return f"{head}; strong judge not asked for {self.not_asked:,}{self._saved}"

    @property
    def _saved(self) -> str:
        if not self.not_asked:
            return ""
        if self.saved_tokens is None:
            return "; the saving is unknown, because it was never asked"
        usd = self.saved_usd
        cost = ""
        if usd is not None:
            saved = f"{usd_text(abs(usd))} {'less' if usd >= 0 else 'more'}"
            cost = f"; including the cheap judge, about USD {saved} than asking the strong judge for all verdicts"
        return f", which saved about {self.saved_tokens:,} of its tokens{cost}"


def cascade_uses(run: Run, prices: Callable[[], Prices] | None) -> tuple[CascadeUse, ...]:
    """Return the use of each cascade that judged a run; without ``prices`` the costs are unknown."""
    return tuple(
        CascadeUse(
            evaluator=verdict.evaluator,
            metric=verdict.metric,
            decided_by=verdict.cascade.decided_by,
            is_strong_asked=verdict.cascade.is_strong_asked,
            cheap=_cost(run, verdict, "cheap", prices),
            strong=_cost(run, verdict, "strong", prices),
        )
        for verdict in run.verdicts
        if verdict.cascade is not None
    )


def _cost(run: Run, verdict: Verdict, stage: Stage, prices: Callable[[], Prices] | None) -> Cost:
    """Return what the requests of a stage cost when they were sent, also if they were replayed now."""
    asked_by = AskingStage(cascade=verdict.evaluator, stage=stage)
    calls = [
        call
        for call in run.model_calls
        # A reply has the name of its rubric, which begins with that of the metric.
        if call.asked_by == asked_by and (call.schema_name or "").startswith(verdict.metric)
    ]
    if not calls:
        return Cost()
    return costs_of(calls, prices() if prices is not None else Prices(()))["evaluator"]


def cascade_totals(uses: Iterable[CascadeUse]) -> list[CascadeTotal]:
    """Return the total of each cascade and metric, in the order in which they first occur."""
    by_cascade: dict[tuple[str, Metric], list[CascadeUse]] = {}
    for use in uses:
        by_cascade.setdefault((use.evaluator, use.metric), []).append(use)
    return [CascadeTotal(tuple(several)) for several in by_cascade.values()]
