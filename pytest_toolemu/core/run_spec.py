"""What one run consists of. Built once for each run; execution, resume, and the cost estimate all read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.references import Trap
from pytest_toolemu.core.run import Identity, hashes_of, run_key, sha256
from pytest_toolemu.core.toolbox import Agent, Emulator, SimulatedUser
from pytest_toolemu.core.verdict import Evaluator, in_force


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
    record. It is not part of ``resolved_case``, so that neither agent nor evaluators see it.
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
