"""The names of the components that a session uses: configured names, and the defaults that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pytest_toolemu.errors import UsageError
from pytest_toolemu.settings.cascade_names import CHECKS, applies_checks, judge_models
from pytest_toolemu.settings.model_names import OFFLINE, AgentConfig, fallback_parts, is_model
from pytest_toolemu.settings.option_table import Settings

NO_BUILDER: Final = "none"
"""The value of ``--toolemu-builder`` with which a missing world is an error."""


@dataclass(frozen=True)
class ComponentNames:
    """Names the components of an agent; None stands for an agent that is not configured by name."""

    settings: Settings

    def emulator(self, variant: AgentConfig | None) -> str:
        """Return the configured emulator; else the agent's model, or ``offline`` if the agent is not a model."""
        if self.settings.emulator:
            return self.settings.emulator
        return variant.agent if variant and is_model(variant.agent) else OFFLINE

    def builder(self, variants: Sequence[AgentConfig | None]) -> str:
        """Return the model that builds missing worlds: the configured one, else the emulator's; empty for none.

        Agents with different models as emulators share their worlds, so none of these models is the default.
        """
        if self.settings.builder:
            return "" if self.settings.builder == NO_BUILDER else self.settings.builder
        models = {name for variant in variants or (None,) if is_model(name := self.emulator(variant))}
        return models.pop() if len(models) == 1 else ""

    def evaluators(self, variant: AgentConfig | None) -> tuple[str, ...]:
        """Return the configured evaluators; else the emulator's model, or ``checks`` if the emulator is offline.

        Each case's checks count in addition, unless ``--toolemu-checks=off`` is set. Raise UsageError if that option
        contradicts a configured ``checks``; return nothing if it leaves no evaluator, or if judging is left for later.
        """
        if self.settings.judge_later:
            return ()
        has_checks = self.settings.checks == "on"
        if names := self.settings.evaluator:
            if any(map(applies_checks, names)) and not has_checks:
                raise UsageError(
                    f"{self.settings.source('evaluator')} names {CHECKS!r} as an evaluator, but "
                    f"{self.settings.source('checks')} turns checks off; remove one of the two"
                )
            return names
        emulator = self.emulator(variant)
        if is_model(emulator):
            return (emulator,)
        return (CHECKS,) if has_checks else ()

    def evaluators_in_force(self, variants: Sequence[AgentConfig | None]) -> list[str]:
        """Return all evaluators of these variants, with ``checks`` if each case's checks count."""
        names = [name for variant in variants or (None,) for name in self.evaluators(variant)]
        has_checks = self.settings.checks == "on" and not self.settings.judge_later
        return list(dict.fromkeys([*names, *([CHECKS] if has_checks else [])]))

    def judging_models(self, variant: AgentConfig | None) -> list[str]:
        """Return the models that judge, each stage of a cascade by itself; a stage may have a fallback."""
        return [model for name in self.evaluators(variant) for model in judge_models(name)]

    def judges_itself(self, variant: AgentConfig) -> bool:
        """Return whether the agent's own model is among its evaluators, or is a fallback of one."""
        judges = [part for name in self.judging_models(variant) for part in fallback_parts(name)]
        return is_model(variant.agent) and variant.agent in judges
