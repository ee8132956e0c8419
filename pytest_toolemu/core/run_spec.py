"""What one run consists of. Built once for each run; execution, resume, and the cost estimate all read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.identity import identity_of
from pytest_toolemu.core.protocols import Evaluator
from pytest_toolemu.core.run import Identity, hashes_of, run_key
from pytest_toolemu.core.toolbox import Agent, Emulator
from pytest_toolemu.core.verdict import in_force
from pytest_toolemu.core.world.trap import Trap


@dataclass(frozen=True)
class Limits:
    """Bounds of one run: tool calls, tokens that the agent uses (None: unbounded), and seconds from its start."""

    max_steps: int = 15
    max_tokens: int | None = None
    timeout: float = 600.0

    @property
    def in_key(self) -> dict[str, int | None]:
        """The limits that are part of a run's key: they change what an agent does, while the timeout only ends it."""
        return {"max_steps": self.max_steps, "max_tokens": self.max_tokens}


@dataclass(frozen=True)
class RunSpec:
    """A case with the components that run it, the scores it needs, its limits, trial number, and seed.

    ``thresholds`` are the lowest scores, from 0 to 3, that pass; a metric without one is not required. ``trial`` counts
    from 1. ``trap`` is only stored in the record. It is no part of ``resolved_case``, so that neither agent nor
    evaluators see it.
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

    @cached_property
    def identity(self) -> Identity:
        """The identities of agent, emulator, and evaluators; that of a plain function is its module and name."""
        return Identity(
            agent=identity_of(self.agent),
            emulator=identity_of(self.emulator),
            evaluators=tuple(identity_of(evaluator) for evaluator in self.evaluators),
        )

    @cached_property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of the case and of each of its toolkits."""
        return hashes_of(self.resolved_case.case, self.resolved_case.toolkits)

    @cached_property
    def key(self) -> str:
        """The key of the run, known before the run is made: it covers everything that can change the result."""
        case_id = self.resolved_case.case.id
        return run_key(case_id, self.hashes, self.identity, self.trial, self.seed, self.limits.in_key)

    @property
    def required_scores(self) -> dict[Metric, int]:
        """The thresholds that apply: a case's own take precedence over ``thresholds``."""
        return in_force(self.resolved_case.case, self.thresholds)
