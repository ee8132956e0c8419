"""Run summaries: what tables, gates, and reports keep of each run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from json import dumps
from typing import Any, Final, Literal

from pydantic import Field

from pytest_toolemu.analysis.cascade_use import CascadeUse
from pytest_toolemu.analysis.summary_fields import UNKNOWN
from pytest_toolemu.core.case_vocabulary import Metric, Score
from pytest_toolemu.core.dataset import Edition
from pytest_toolemu.core.identity import ComponentName
from pytest_toolemu.core.messages import Role
from pytest_toolemu.core.run import CassetteUse, Origin, RunSource
from pytest_toolemu.core.run_notes import NoteKind, RunNote
from pytest_toolemu.core.verdict import PASSING, Outcome
from pytest_toolemu.formats.counted import counted
from pytest_toolemu.formats.yaml_document import Record
from pytest_toolemu.models.pricing import Cost

NOT_RUN: Final = "not run"
"""Outcome in a row, never in a run: the session's budget or deadline ended before the case had a verdict."""

CHECKS_KIND: Final = "checks"
"""Kind of the evaluator that applies a case's own checks; every other kind is a judge, which may be wrong."""

MODEL_JUDGE_KIND: Final = "judged"
"""Kind of a judge that is a model of the session, so that ``toolemu calibrate`` can ask it."""


ReportedOutcome = Outcome | Literal["not run"]
"""Outcome of a run, or that there is none, as in NOT_RUN."""

OUTCOMES: Final[tuple[ReportedOutcome, ...]] = (
    "failed",
    "broken",
    "inconclusive",
    "unjudged",
    "not run",
    "passed",
)
"""All outcomes, the most urgent one first."""

_NO_SCORE: Final = 4


class EvaluatorScore(Record):
    """The score that one evaluator gave one metric of a run; None if it gave none."""

    evaluator: str
    metric: Metric
    score: Score | None = None


class RunSummary(Record):
    """What summaries, gates, and baselines need of one run. ``outcome`` is None for a case that has none yet."""

    case: str
    agent: str = "?"
    trial: int = 1
    outcome: ReportedOutcome | None = None
    safety: Score | None = None
    helpfulness: Score | None = None
    stop: str = ""
    turns: int = 1
    """Number of messages that the agent could write to the user, counting its answer."""
    dialogue: dict[str, int] = Field(default_factory=dict)
    """Counts of what the user did, by what is counted; empty for a run with one turn."""
    twin_of: str | None = None
    tokens: int = 0
    calls: int = 0
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
    risk_types: tuple[str, ...] = ()
    toolkits: tuple[str, ...] = ()
    category: str = UNKNOWN
    severity: str = UNKNOWN
    asking: str = UNKNOWN
    clues: tuple[str, ...] = ()
    gap: str = UNKNOWN
    split: str = UNKNOWN
    emulator: ComponentName | None = None
    user: ComponentName | None = None
    """The user of a conversation; None in a run with one turn."""
    judges: tuple[ComponentName, ...] = ()
    """All evaluators, also the checks of the cases."""
    scores: tuple[EvaluatorScore, ...] = ()
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
        return self.safety if metric == "safety" else self.helpfulness

    def after(self, before: RunSummary) -> RunSummary:
        """Return the summary with what an earlier attempt at the item has used, because that was paid for as well."""
        if before.source == "resumed":
            return self
        roles = (*before.costs, *self.costs)
        return self.model_copy(
            update={
                "costs": {role: before.costs.get(role, Cost()) + self.costs.get(role, Cost()) for role in roles},
                "tokens": self.tokens + before.spent,
                "calls": self.calls + before.calls,
                "usage_unknown": self.usage_unknown + before.usage_unknown,
                "unseen": tuple(dict.fromkeys((*before.unseen, *self.unseen))),
            }
        )

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
    return sorted({judge for run in runs for judge in run.judges if judge.kind != CHECKS_KIND}, key=str)
