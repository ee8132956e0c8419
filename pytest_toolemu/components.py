"""Builds the components of a session from its settings: agents, emulators, evaluators, and the user.

A configured component is used, or the session stops; nothing is replaced silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_toolemu.agents.control_agents import ReferenceAgent, no_op
from pytest_toolemu.agents.custom import BUILT_IN_AGENTS, find_custom_agent
from pytest_toolemu.agents.model_agents import ReactAgent, ToolCallingAgent
from pytest_toolemu.agents.model_gateway import SessionRules
from pytest_toolemu.agents.programs.load_agent import is_program, load_program
from pytest_toolemu.agents.programs.service import ServiceAgent
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.run import Evaluator
from pytest_toolemu.core.toolbox import Agent, Emulator, SimulatedUser
from pytest_toolemu.emulators.layers import (
    ConsistentEmulator,
    OfflineEmulator,
    PinnedEmulator,
    RowsEmulator,
    ValidatedEmulator,
)
from pytest_toolemu.emulators.simulated import SimulatedEmulator
from pytest_toolemu.emulators.users import ModelUser, OfflineUser
from pytest_toolemu.errors import UsageError
from pytest_toolemu.evaluators.cascade import CascadeEvaluator
from pytest_toolemu.evaluators.checks import ChecksEvaluator
from pytest_toolemu.evaluators.honesty import HonestyJudge
from pytest_toolemu.evaluators.model_judge import JudgeEvaluator, Rubric
from pytest_toolemu.models.endpoint import ModelSpec, parse_spec
from pytest_toolemu.models.model_pool import ModelPool
from pytest_toolemu.models.retrying import HarnessModel, parse_fallback
from pytest_toolemu.settings.model_names import (
    AGENT_FILE,
    CHECKS,
    NOACT,
    OFFLINE,
    REFERENCE,
    AgentConfig,
    cascade_names,
    is_model,
    judge_models,
)
from pytest_toolemu.settings.option_table import Settings
from pytest_toolemu.settings.resolution import NO_BUILDER, ComponentNames


class Components:
    """Builds the components of a session, from the models of its pool."""

    def __init__(self, settings: Settings, models: ModelPool | None = None) -> None:
        self._settings = settings
        self.names = ComponentNames(settings)
        self.models = models or ModelPool(settings)

    def agent(self, variant: AgentConfig) -> Agent:
        """Return the agent under test. Raise UsageError if it cannot be built."""
        name = variant.agent
        if name == NOACT:
            return no_op
        if name.startswith(REFERENCE):
            if name == REFERENCE:
                raise UsageError(f"{name!r} does not name a reference; write reference:safe or reference:risky")
            return ReferenceAgent(name.removeprefix(REFERENCE))
        if is_program(name):
            return self._program(name)
        if (agent := find_custom_agent(name)) is not None:
            return agent
        loop = ReactAgent if self._settings.protocol == "react" else ToolCallingAgent
        return loop(self.models.model(name, BUILT_IN_AGENTS), variant.prompt)

    def _program(self, name: str) -> Agent:
        program = load_program(name, SessionRules(self.models.limited, self._settings.plays_only))
        if isinstance(program, ServiceAgent):
            return program
        if self._settings.turns > 1:
            raise UsageError(
                f"{self._settings.source('turns')} is {self._settings.turns}, but the command {name!r} exits after "
                "its answer and cannot read the user's replies; test it with one turn"
            )
        return replace(program, inherited=self._settings.agent_env)

    def agent_note(self, variant: AgentConfig) -> str:
        """Return what the header says about an agent that a file describes; empty if there is nothing to say."""
        agent = load_program(variant.agent) if variant.agent.endswith(AGENT_FILE) else None
        return agent.note if isinstance(agent, ServiceAgent) else ""

    def emulator(self, variant: AgentConfig | None) -> Emulator:
        """Return the emulator for an agent; None means an agent that is not configured by name."""
        name = self.names.emulator(variant)
        inner: Emulator = OfflineEmulator()
        if name != OFFLINE:
            inner = SimulatedEmulator(self.models.harness_model(name, (OFFLINE,)), self._settings.emulator_mode)
        return ValidatedEmulator(PinnedEmulator(RowsEmulator(ConsistentEmulator(inner))))

    def evaluators(self, variant: AgentConfig | None, metric: Metric) -> tuple[Evaluator, ...]:
        """Return the evaluators of a metric; none if judging is left for later.

        Raise UsageError if there is none because the checks are turned off.
        """
        if self._settings.judge_later:
            return ()
        if metric == "honesty":
            names = self.names.evaluators(variant) if self._settings.min_honesty is not None else ()
            models = [judge_models(name)[0] for name in names if judge_models(name)]
            return tuple(HonestyJudge(self.models.harness_model(model, (CHECKS,))) for model in models)
        kind = self._settings.helpfulness
        if metric == "helpfulness" and kind == "none":
            return ()
        ignore = metric == "helpfulness" and kind == "ignore-safety"
        rubric: Rubric = "helpfulness_ignore_safety" if ignore else metric
        names = self.names.evaluators(variant)
        if not names:
            raise UsageError(
                "no evaluator is left: if the emulator is not a model, only the checks of each case judge, but "
                f"{self._settings.source('checks')} turns them off; name a model with --toolemu-evaluator, or turn "
                "checks on"
            )
        return tuple(ChecksEvaluator(metric) if name == CHECKS else self._judge(name, metric, rubric) for name in names)

    def _judge(self, name: str, metric: Metric, rubric: Rubric) -> Evaluator:
        """Return the judge or the cascade with this name."""
        models = (self.models.harness_model(model, (CHECKS,)) for model in judge_models(name))
        judges = tuple(JudgeEvaluator(model, rubric) for model in models)
        cascade = cascade_names(name)
        if cascade is None:
            return judges[0]
        threshold = self._settings.min_safety if metric == "safety" else self._settings.min_helpfulness
        return CascadeEvaluator(judges, cascade.has_checks, threshold)

    def user(self) -> SimulatedUser:
        """Return the user who replies in conversations. Raise UsageError for a model that no agent could ask."""
        if self._settings.user == OFFLINE:
            return OfflineUser()
        if self._settings.turns == 1:
            raise UsageError(
                f"{self._settings.source('user')} names the user {self._settings.user!r}, but with one turn, no agent "
                "can ask the user anything; set --toolemu-turns above 1, or remove the user"
            )
        return ModelUser(self.models.harness_model(self._settings.user, (OFFLINE,)))

    def builder(self, variants: Sequence[AgentConfig | None]) -> HarnessModel:
        """Return the model that builds missing worlds. Raise UsageError if it cannot be used."""
        return self.models.harness_model(self.names.builder(variants), (NO_BUILDER,))

    def models_in_use(self, variants: Sequence[AgentConfig | None]) -> dict[ModelSpec, bool]:
        """Return every model that these variants use, agents first, and whether it is used as an agent."""
        acting = [variant.agent for variant in variants if variant and is_model(variant.agent)]
        supporting = [
            name
            for variant in variants
            for name in (self.names.emulator(variant), *self.names.judging_models(variant))
            if is_model(name)
        ]
        if is_model(self._settings.user):
            supporting.append(self._settings.user)
        if self._settings.world == "built" and (builder := self.names.builder(variants)):
            supporting.append(builder)
        acting_specs = dict.fromkeys(map(parse_spec, acting), True)
        supporting_specs = [spec for name in supporting for spec in parse_fallback(name)]
        return dict.fromkeys([*acting_specs, *supporting_specs], False) | acting_specs

    async def preflight(self, variants: Sequence[AgentConfig | None], *, may_be_made: bool = False) -> None:
        """Build every component of these variants, and verify each endpoint. Raise UsageError for the first problem.

        ``may_be_made``: a hook of the user may build agents, so unknown names of agents are not errors. Endpoints that
        the session serves itself are left for when they are running: see ``ModelPool.preflight``.
        """
        for variant in variants:
            try:
                if variant is not None and isinstance(agent := self.agent(variant), ServiceAgent):
                    await agent.check()
            except UsageError:
                if variant is None or is_model(variant.agent) or is_program(variant.agent) or not may_be_made:
                    raise
            self.emulator(variant)
            for name in self.names.judging_models(variant):
                self.models.harness_model(name, (CHECKS,))
        self.user()
        await self.models.preflight(served=False)
