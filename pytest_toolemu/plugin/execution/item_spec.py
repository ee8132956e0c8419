"""Builds the ``RunSpec`` of an item: from fixtures at its turn, or from the settings and hooks before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from pytest_toolemu.agents.custom import custom_agent
from pytest_toolemu.core.case import Case, ResolvedCase
from pytest_toolemu.core.case_vocabulary import Metric
from pytest_toolemu.core.identity import name_of
from pytest_toolemu.core.references import Trap
from pytest_toolemu.core.run_spec import Limits, RunSpec
from pytest_toolemu.core.toolbox import Agent, Emulator, SimulatedUser
from pytest_toolemu.core.verdict import Evaluator
from pytest_toolemu.evaluators.checks import with_checks
from pytest_toolemu.plugin.collection.item_agents import agent_configs, label_of, params_of
from pytest_toolemu.plugin.execution.item_world import case_in_world
from pytest_toolemu.plugin.services import Services
from pytest_toolemu.plugin.session import RESOLVED_CASE, TRAP, CaseError
from pytest_toolemu.settings import AgentConfig, Settings

Evaluators = Evaluator | tuple[Evaluator, ...]
"""What a fixture for evaluators returns."""

_AGENT: pytest.StashKey[Agent] = pytest.StashKey()
"""The agent of an item whose case ran before its turn, for the fixture at its turn."""


def run_spec(
    services: Services,
    resolved_case: ResolvedCase,
    agent: Agent,
    emulator: Emulator,
    user: SimulatedUser,
    evaluators: Mapping[Metric, Evaluators],
    *,
    trial: int,
    trap: Trap | None,
) -> RunSpec:
    """Build the spec of a run from its components and the settings. ``trap`` is that of the case's built world.

    With several turns, a case with a conversation gets the user. Raise CaseError for a user or an evaluator that is not
    a function, and for an evaluator of a fixture if judging is left for later.
    """
    settings = services.session.settings
    if settings.judge_later:
        refuse_evaluator_fixtures(settings, evaluators)
    thresholds: dict[Metric, int] = {"safety": settings.min_safety}
    if settings.helpfulness != "none":
        thresholds["helpfulness"] = settings.min_helpfulness
    spec = RunSpec(
        resolved_case,
        agent,
        emulator,
        tuple(
            evaluator
            for metric, configured in evaluators.items()
            for evaluator in (() if settings.judge_later else _with_checks(settings, metric, configured))
        ),
        thresholds,
        Limits(settings.max_steps, settings.max_tokens, settings.timeout),
        trial,
        settings.seed + trial - 1,
        trap,
        judge_later=settings.judge_later,
    )
    if not callable(user):
        raise CaseError(f"the user is {user!r}; a fixture must return an async function (trajectory) -> UserReply")
    return spec.in_conversation(user, settings.turns)


def spec_before_turn(
    item: pytest.Function, services: Services, fixture_values: Mapping[str, Any] | None = None
) -> RunSpec | None:
    """Build the spec of an item before its turn; None if neither the settings nor a hook name an agent.

    The components come from the settings and hooks, except for ``fixture_values``, by the names of their fixtures.
    """
    values, params = fixture_values or {}, params_of(item)
    settings, components = services.session.settings, services.models.open_components()
    config: AgentConfig | None = params.get("toolemu_variant") or next(iter(agent_configs(settings)), None)
    resolved_case = case_in_world(item, services)
    if "toolemu_agent" in values:
        agent: Agent | None = as_agent(values["toolemu_agent"], item)
    else:
        agent = agent_of(item, services, resolved_case.case, config)
        if agent is not None:
            item.stash[_AGENT] = agent
    if agent is None:
        return None

    def value(fixture: str, build: Callable[[], Any]) -> Any:
        return values[fixture] if fixture in values else build()

    evaluators: dict[Metric, Evaluators] = {
        "safety": value("toolemu_safety_evaluator", lambda: components.evaluators(config, "safety")),
        "helpfulness": value("toolemu_helpfulness_evaluator", lambda: components.evaluators(config, "helpfulness")),
    }
    emulator = value("toolemu_emulator", lambda: components.emulator(config))
    user = value("toolemu_user", components.user)
    trial, trap = params.get("toolemu_trial", 1), item.stash.get(TRAP, None)
    return run_spec(services, resolved_case, agent, emulator, user, evaluators, trial=trial, trap=trap)


def agent_of(item: pytest.Item, services: Services, case: Case, config: AgentConfig | None) -> Agent | None:
    """Return the agent that a hook creates, else the configured one, else None.

    The hook is called once for each item of a process, and again for each rerun.
    """
    if _AGENT in item.stash:
        agent = item.stash[_AGENT]
        del item.stash[_AGENT]
        return agent
    name = config.agent if config else None
    created = visible_hooks(item).pytest_toolemu_make_agent(name=name, case=case, config=item.config)
    if created is not None:
        return as_agent(created, item)
    return services.models.open_components().agent(config) if config else None


def visible_hooks(item: pytest.Item) -> Any:
    """Return the hooks that apply to an item.

    pytest hides a conftest from files outside its folder, but cases of an installed package see all of the project's.
    """
    return item.ihook if item.path.is_relative_to(item.config.rootpath) else item.config.hook


def as_agent(agent: Any, item: pytest.Item) -> Agent:
    """Return an agent of this package as it is, and wrap any other function, async or plain, as a custom agent."""
    if hasattr(agent, "identity"):
        return cast(Agent, agent)
    if not callable(agent):
        raise CaseError(f"the agent is {agent!r}; a fixture or hook must return a function (task, toolbox) -> str")
    return custom_agent(agent, name_of(agent) + _project_params(item))


def refuse_evaluator_fixtures(settings: Settings, evaluators: Mapping[Metric, Evaluators]) -> None:
    """Raise CaseError if a fixture of the project provides evaluators: no other process can ask them."""
    for metric, configured in evaluators.items():
        if configured != ():
            raise CaseError(
                f"the fixture toolemu_{metric}_evaluator provides an evaluator, which 'toolemu judge' cannot use "
                f"later; remove {settings.source('judge-later')}, or the fixture"
            )


def _with_checks(settings: Settings, metric: Metric, evaluators: Evaluators) -> tuple[Evaluator, ...]:
    several = tuple(evaluators) if isinstance(evaluators, tuple | list) else (evaluators,)
    for evaluator in several:
        if not callable(evaluator):
            raise CaseError(
                f"an evaluator is {evaluator!r}; a fixture must return an async function, or a tuple of them"
            )
    return with_checks(several, metric) if metric in settings.checked else several


def _project_params(item: pytest.Item) -> str:
    """Return ``[ID]`` of the project's own parameters, as a parametrized fixture creates agents of the same name.

    The case, the trial, and a configured agent are left out: they do not make another agent.
    """
    params = params_of(item)
    plugin_ids = {
        "toolemu_case": item.stash[RESOLVED_CASE].case.id,
        "toolemu_trial": f"trial{params.get('toolemu_trial')}",
    }
    plugin_ids["toolemu_variant"] = label_of(item) or ""
    if not set(params) - set(plugin_ids):
        return ""
    item_id = f"-{item.name.partition('[')[2].removesuffix(']')}-"
    for name in set(plugin_ids) & set(params):
        item_id = item_id.replace(f"-{plugin_ids[name]}-", "-", 1)
    return f"[{item_id.strip('-')}]"
