"""The components of the checks on drafts that need models: judges of the references, and an agent to try out."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pytest_toolemu.agents.control_agents import ReferenceAgent
from pytest_toolemu.authoring.drafts.card_results import METRICS
from pytest_toolemu.authoring.drafts.draft_records import AskedSource
from pytest_toolemu.authoring.play_references import reference_emulator
from pytest_toolemu.core.case import ResolvedCase
from pytest_toolemu.core.identity import component_name, identity_of
from pytest_toolemu.core.run_spec import Limits, RunSpec
from pytest_toolemu.core.toolbox import Agent, Emulator
from pytest_toolemu.core.verdict import PASSING, Evaluator
from pytest_toolemu.models.cassette_files import CassetteDirectory
from pytest_toolemu.models.cassette_recorder import CassetteRecorder


@dataclass(frozen=True)
class TrialAgent:
    """An agent for quick runs, the emulator and evaluators of its runs, and the number of runs."""

    name: str
    agent: Agent
    emulator: Emulator
    evaluators: tuple[Evaluator, ...]
    trials: int = 3
    limits: Limits = field(default_factory=Limits)

    def specs(self, resolved_case: ResolvedCase) -> list[RunSpec]:
        """Return the runs of the agent on a case; each trial has a seed of its own."""
        thresholds = dict.fromkeys(METRICS, PASSING)
        return [
            RunSpec(
                resolved_case, self.agent, self.emulator, self.evaluators, thresholds, self.limits, number + 1, number
            )
            for number in range(self.trials)
        ]


@dataclass(frozen=True)
class CheckModels:
    """Judges and an agent, if any, and the cassettes of their model calls; None if they are not recorded."""

    judges: tuple[Evaluator, ...] = ()
    agent: TrialAgent | None = None
    cassettes: CassetteDirectory | None = None

    @property
    def names(self) -> dict[AskedSource, str]:
        """The names by which a record knows which models were asked."""
        names: dict[AskedSource, str] = {}
        if self.judges:
            names["judge"] = ", ".join(str(component_name(identity_of(judge))) for judge in self.judges)
        if self.agent is not None:
            emulator = component_name(identity_of(self.agent.emulator))
            names["agent"] = f"{component_name(identity_of(self.agent.agent))}, {emulator}, {self.agent.trials} runs"
        return names

    def without(self, sources: Container[AskedSource]) -> CheckModels:
        """Return the models that are left if those of some checks are not asked."""
        return dataclasses.replace(
            self,
            judges=() if "judge" in sources else self.judges,
            agent=None if "agent" in sources else self.agent,
        )

    def specs(self, resolved_case: ResolvedCase) -> list[RunSpec]:
        """Return the runs that these models take part in, for an estimate of the cost."""
        labels = resolved_case.case.references if self.judges else ()
        judged = [RunSpec(resolved_case, ReferenceAgent(label), reference_emulator(), self.judges) for label in labels]
        return [*judged, *(self.agent.specs(resolved_case) if self.agent else ())]

    @contextmanager
    def recorder(self, case_id: str, part: str) -> Iterator[CassetteRecorder | None]:
        """Provide the recorder for one part of the checks; its cassette is written at the end."""
        if self.cassettes is None:
            yield None
            return
        item = f"check::{case_id}::{part}"
        recorder = CassetteRecorder(self.cassettes, item, case_id, 1)
        has_ended = False
        try:
            yield recorder
            has_ended = True
        finally:
            recorder.finish(has_ended)  # also after a failure: replies that arrived were paid for
